"""Configuration: what can be set, where it comes from, and what is wrong with it.

`schema` says which keys there are, `values` how their values are written, `load` brings a file, the environment and
flags together, `places` knows the default files and directories, `document` writes the reference page.
"""
