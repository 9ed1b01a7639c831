"""How much one search of the message index returns. The commands show these numbers without loading the broker."""

#: Messages that one search returns by default and at most.
DEFAULT_MESSAGES = 32
MOST_MESSAGES = 64
#: The time range of a search by default: three days, in ms.
DEFAULT_RANGE = 259_200_000
