"""For all tests: the client library `amqp` is imported before pytest can take its name.

Test modules are named by their path below this folder, so those in tests/amqp get a parent called `amqp`, and so is py-amqp, on which kombu and Celery
stand. The first to be imported stays, and the test modules do not mind.
"""

import amqp  # noqa: F401
