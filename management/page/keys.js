/**
 * The arguments of queues and exchanges and the keys of policies that have a meaning, each with a hint, and with the type
 * of its value if that is no text.
 * @module
 */

/** @typedef {[name: string, hint: string, type?: string, value?: string]} Shortcut a name, and what its value is at first */
/** @typedef {[title: string, shortcuts: Shortcut[]]} Group */

const NUMBER = "number";
const BOOLEAN = "boolean";
const LIST = "list or table";

/** Arguments that several types of queues take, by type. */
const EXPIRES = ["x-expires", "ms without use after which the queue is deleted", NUMBER];
const ACTIVE = ["x-single-active-consumer", "one consumer gets all messages; when it leaves, the next one does", BOOLEAN, "true"];
const TIMEOUT = ["x-consumer-timeout", "ms that a delivery may stay unacknowledged", NUMBER];
const BYTES = ["x-max-length-bytes", "most bytes of ready messages", NUMBER];
const LOCATOR = ["x-queue-leader-locator", "client-local, balanced, random or least-leaders"];
const COMMON = [
  ["Time", [["x-message-ttl", "ms that a message may wait", NUMBER], EXPIRES, TIMEOUT]],
  ["Length", [["x-max-length", "most ready messages", NUMBER], BYTES, ["x-overflow", "at the limit: drop-head, reject-publish or reject-publish-dlx"]]],
  ["Dead letters", [["x-dead-letter-exchange", "exchange for rejected, expired and dropped messages"], ["x-dead-letter-routing-key", "routing key of dead letters, instead of their own"]]],
];

/** By type of the queue: the groups of its arguments. @type {Record<string, Group[]>} */
export const QUEUE_ARGUMENTS = {
  classic: [
    ...COMMON,
    ["Delivery", [ACTIVE, ["x-max-priority", "number of priorities, 1 to 255", NUMBER], ["x-drop-lowest", "at the length limit drop messages of the lowest priority", BOOLEAN, "true"], ["x-warren-deduplicate", "how many messages the queue remembers, so that it keeps none twice", NUMBER]]],
    ["Place", [["x-queue-mode", "lazy: messages wait on the disk", "text", "lazy"], ["x-queue-version", "1 or 2; both are the same here", NUMBER], ["x-queue-master-locator", "min-masters, client-local or random"]]],
    ["Shards", [["x-warren-shards", "how many queues have the messages", NUMBER], ["x-shards", "the same under another name", NUMBER], ["x-warren-shard-policy", "sequence: a channel publishes to the shards in turn; or random"], ["x-warren-shard-order", "relaxed: only the messages of one shard stay in order"]]],
    ["Fair lanes", [["x-fair-by", "what a message is assigned to a lane by: routing-key, exchange, user or header:NAME"], ["x-fair-lanes-max", "most lanes, up to 65,536; 1,024 if not given", NUMBER], ["x-fair-batch", "messages of a lane in its turn", NUMBER], ["x-fair-weight", "batches that a lane delivers in its turn, by value", LIST, "{}"], ["x-fair-cost", "message or bytes"], ["x-fair-lane-max-length", "most messages of one lane", NUMBER]]],
  ],
  quorum: [
    ...COMMON,
    ["Delivery", [ACTIVE, ["x-delivery-limit", "how often a message may be returned", NUMBER], ["x-dead-letter-strategy", "at-most-once or at-least-once"]]],
    ["Place", [["x-quorum-initial-group-size", "number of replicas", NUMBER], LOCATOR, ["x-max-in-memory-length", "accepted without effect", NUMBER], ["x-max-in-memory-bytes", "accepted without effect", NUMBER]]],
  ],
  stream: [
    ["Length", [BYTES, ["x-max-age", "how long messages are kept, such as 7D"], ["x-stream-max-segment-size-bytes", "size of a file", NUMBER]]],
    ["Others", [TIMEOUT, ["x-initial-cluster-size", "number of replicas", NUMBER], LOCATOR]],
  ],
  group: [
    ["Members", [["x-group-members", "names of the queues, in order", LIST, "[]"], ["x-group-pattern", "or a regular expression for their names"]]],
    ["Schedule", [["x-group-schedule", "strict, fair or weighted"], ["x-group-batch", "messages of a member in its turn", NUMBER], ["x-group-weights", "object from queue to weight", LIST, "{}"], ["x-group-starve-after-ms", "with strict: ms after which a member that waits is next", NUMBER]]],
    ["Others", [ACTIVE, EXPIRES, TIMEOUT, ["x-group-source-header", "add the header x-warren-queue with the name of the member", BOOLEAN, "true"]]],
  ],
};

/** @type {Group[]} */
export const EXCHANGE_ARGUMENTS = [
  ["", [["alternate-exchange", "exchange for messages that reach no queue"], ["x-warren-deduplicate", "how many messages each queue behind it remembers, so that it keeps none twice", NUMBER]]],
];

/** The keys of a policy by subject. @type {Group[]} */
export const POLICY_KEYS = [
  ["Time", [["message-ttl", "ms that a message may wait", NUMBER], ["expires", "ms without use after which a queue is deleted", NUMBER], ["consumer-timeout", "ms that a delivery may stay unacknowledged", NUMBER]]],
  ["Length", [["max-length", "most ready messages", NUMBER], ["max-length-bytes", "most bytes of ready messages", NUMBER], ["overflow", "at the limit: drop-head, reject-publish or reject-publish-dlx"], ["drop-lowest", "at the limit drop messages of the lowest priority", BOOLEAN, "true"]]],
  ["Dead letters", [["dead-letter-exchange", "exchange for rejected, expired and dropped messages"], ["dead-letter-routing-key", "routing key of dead letters, instead of their own"], ["dead-letter-strategy", "quorum queues: at-most-once or at-least-once"], ["delivery-limit", "quorum queues: how often a message may be returned", NUMBER]]],
  ["Mirrors", [["ha-mode", "all, exactly or nodes"], ["ha-params", "with exactly a number, with nodes a list of names", LIST], ["ha-sync-mode", "whether a new mirror copies the queue at once: automatic or manual"], ["ha-sync-batch-size", "messages that are copied together", NUMBER], ["ha-promote-on-shutdown", "when a mirror that lacks messages may lead: always or when-synced"], ["ha-promote-on-failure", "the same after a failure"], ["ha-min-in-sync", "replicas that must have a message before it is confirmed", NUMBER], ["ha-ack-timeout", "ms after which a mirror that does not follow leaves the ring", NUMBER]]],
  ["Place", [["queue-mode", "lazy: messages wait on the disk", "text", "lazy"], ["queue-version", "1 or 2; both are the same here", NUMBER], ["queue-master-locator", "min-masters, client-local or random"], ["queue-leader-locator", "client-local, balanced, random or least-leaders"], ["max-in-memory-length", "accepted without effect", NUMBER], ["max-in-memory-bytes", "accepted without effect", NUMBER]]],
  ["Consumers", [["consumer-max-unacked", "most messages that a consumer holds", NUMBER], ["consumer-max-unacked-bytes", "most bytes that a consumer holds", NUMBER], ["consumer-max-span", "how far a consumer may be ahead of the first message that it holds", NUMBER]]],
  ["Pace", [["pace-rate", "messages that the queue delivers in a period", NUMBER], ["pace-period-ms", "the period, 1,000 ms without this key", NUMBER], ["pace-max-wait-ms", "longest planned wait of a message", NUMBER], ["pace-overflow", "what happens to one that would wait longer: hold, dead-letter, nack or drop"], ["pace-burst", "deliveries that may go together after a pause", NUMBER], ["pace-warm-up-ms", "how long the rate grows after a pause", NUMBER], ["pace-scope", "who has a clock: queue, group or consumer"], ["pace-group", "queues with the same name share the rate"], ["pace-cost", "message or kib"], ["pace-get", "pace basic.get too", BOOLEAN, "true"]]],
  ["Fair lanes", [["fair-by", "what a message is assigned to a lane by: routing-key, exchange, user or header:NAME"], ["fair-lanes-max", "most lanes, up to 65,536; 1,024 if not given", NUMBER], ["fair-batch", "messages of a lane in its turn", NUMBER], ["fair-weight", "batches that a lane delivers in its turn, by value", LIST, "{}"], ["fair-cost", "message or bytes"], ["fair-lane-max-length", "most messages of one lane", NUMBER]]],
  ["Finding", [["message-index", "what messages are found by: none, id or key, or a list of properties and headers"], ["index-retention-ms", "ms for which the index knows messages that are gone", NUMBER], ["deduplicate", "how many messages a queue remembers, so that it keeps none twice", NUMBER]]],
  ["Streams", [["max-age", "how long messages are kept, such as 7D"], ["stream-max-segment-size-bytes", "size of a file", NUMBER], ["initial-cluster-size", "number of replicas", NUMBER]]],
  ["Exchanges", [["alternate-exchange", "exchange for messages that reach no queue"]]],
];

/** The keys of a policy that an operator policy may have too. */
const OF_OPERATORS = /^(message-ttl|expires|max-length|max-length-bytes|max-in-memory-length|max-in-memory-bytes|delivery-limit|deduplicate|pace-.*)$/;

/** The keys of an operator policy by subject. @type {Group[]} */
export const OPERATOR_KEYS = POLICY_KEYS.map(([title, keys]) => [title, keys.filter(([name]) => OF_OPERATORS.test(name))]).filter(([, keys]) => keys.length);
