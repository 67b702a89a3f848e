"""The command plane of a node, put together: what sends commands, brings their answers home, and observes both."""
