// A conversation of amqplib with the broker. Each step prints a fact as a line of JSON, which test_amqplib.py checks.
// Arguments: URL, a name that no other test uses.

const amqp = require('amqplib');
const [url, name] = process.argv.slice(2);
const say = (step, fact) => console.log(JSON.stringify([step, fact]));

async function confirms(connection) {
  const channel = await connection.createConfirmChannel();
  await channel.assertQueue(name, { durable: false, autoDelete: true });
  const headers = { n: 1, text: 'ü', nested: { list: [1, 'two', true] } };
  for (let n = 0; n < 100; n++) channel.sendToQueue(name, Buffer.from(String(n)), { headers, messageId: 'm' + n });
  await channel.waitForConfirms();
  const first = await channel.get(name);
  channel.ack(first);
  say('headers', first.properties.headers);
  say('count after get', first.fields.messageCount);

  const bodies = [];
  await channel.prefetch(10);
  await new Promise((resolve) => channel.consume(name, (message) => {
    bodies.push(Number(message.content.toString()));
    channel.ack(message);
    if (bodies.length === 99) resolve();
  }));
  say('in order', bodies.every((n, i) => n === i + 1));
  await channel.close();
}

async function returned(connection) {
  const channel = await connection.createConfirmChannel();
  const back = new Promise((resolve) => channel.on('return', resolve));
  channel.publish('', name + '-nobody', Buffer.from('lost'), { mandatory: true });
  const message = await back;
  say('returned', [message.fields.replyCode, message.fields.replyText, message.content.toString()]);
  await channel.close();
}

async function topics(connection) {
  const channel = await connection.createConfirmChannel();
  await channel.assertExchange(name + '-x', 'topic', { autoDelete: true, durable: false });
  const { queue } = await channel.assertQueue('', { exclusive: true });
  await channel.bindQueue(queue, name + '-x', 'stock.*.eur');
  channel.publish(name + '-x', 'stock.sap.eur', Buffer.from('hit'));
  channel.publish(name + '-x', 'stock.sap.usd', Buffer.from('miss'));
  await channel.waitForConfirms();
  say('topic', [(await channel.get(queue)).content.toString(), await channel.get(queue)]);
  await channel.close();
}

async function large(connection) {
  const channel = await connection.createConfirmChannel();
  const { queue } = await channel.assertQueue('', { exclusive: true });
  const body = Buffer.alloc(3_000_000, 'abc');
  channel.sendToQueue(queue, body);
  await channel.waitForConfirms();
  say('large', (await channel.get(queue)).content.equals(body));
  await channel.close();
}

async function refused(connection) {
  const channel = await connection.createChannel();
  const error = await new Promise((resolve) => {
    channel.on('error', resolve);
    channel.checkQueue(name + '-nobody').catch(() => {});
  });
  say('refused', [error.code, error.message.includes('NOT_FOUND - no queue')]);
}

(async () => {
  const connection = await amqp.connect(url, { heartbeat: 5 });
  for (const step of [confirms, returned, topics, large, refused]) await step(connection);
  await connection.close();
  say('closed', true);
})().catch((error) => { console.error(error); process.exit(1); });
