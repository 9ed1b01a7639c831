"""The commands that ask no node: they run a broker, a load test, a simulation or a job, or read the files of a stopped
broker.
"""
