-- LuaJIT with its standard library; the host binary adds `nn`.
std = "luajit"
read_globals = {"nn"}
max_line_length = 100
-- `self` in a method that needs none, and unused arguments that document a callback, are fine
self = false
unused_args = false
