"""distlib: the laws of *Principles of Distributed Machine Learning*, one module a topic, one function an equation."""
