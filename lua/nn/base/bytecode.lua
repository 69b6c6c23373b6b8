-- LuaJIT's bytecode: the opcodes that blame.lua and reads.lua look for. They differ between
-- versions of LuaJIT, so they are read from code that contains them.

local util = require "jit.util"

local M = {}

--- decode(code, pc) -> op, a, b, c, d: the opcode and the operands of an instruction of a function
--- or prototype. d has the bits of b and c.
function M.decode(code, pc)
  local instruction = util.funcbc(code, pc)
  local d = bit.rshift(instruction, 16)
  return bit.band(instruction, 0xff), bit.band(bit.rshift(instruction, 8), 0xff), bit.rshift(d, 8),
         bit.band(d, 0xff), d
end

--- constant(code, number) -> the text that operand c of a FIELD, or d of a GLOBAL, stands for.
function M.constant(code, number) return util.funck(code, -number - 1) end

local function opcode(text, pc) return (M.decode(loadstring(text), pc)) end

M.GLOBAL = opcode("return a", 1)
M.FIELD = opcode("local a = ... return a.b", 2)
M.COMPUTED = opcode("local a, b = ... return a[b]", 2)
M.ELEMENT = opcode("local a = ... return a[1]", 2)
M.LENGTH = opcode("local a = ... return #a", 2)
M.ADD_NUMBER = opcode("local a = ... return a + 1", 2)
M.MOVE = opcode("local a = ... local b = a", 2)
M.NILS = opcode("local a, b", 1)
M.CLOSURE = opcode("return function() end", 1)
M.JUMP = opcode("local a = ... if a then b() end", 3)
M.OR = opcode("local a, b = ... local c = a or b", 2)
M.AND = opcode("local a, b = ... local c = a and b", 2)
M.FIRST_CALL, M.LAST_CALL = opcode("a(b())", 4), opcode("return a()", 2)
M.TAIL_CALL, M.TAIL_CALL_ALL = opcode("return a()", 2), opcode("return a(...)", 3)
M.FIRST_RETURN = opcode("return ...", 2)
M.LAST_RETURN = M.FIRST_RETURN + 3

local read, write = loadstring "local a return function() return a end, function(b) a = b end" ()
M.UPVALUE, M.SET_UPVALUE = (M.decode(read, 1)), (M.decode(write, 1))

M.STORES = {}                    -- the instructions that store register a in a table or global
for _, target in ipairs {"a[b]", "a.b", "a[1]", "d"} do
  M.STORES[opcode(("local a, b, c = ... %s = c"):format(target), 2)] = true
end

-- From the register of a called function to that of its first argument.
M.ARGUMENT = select(2, M.decode(loadstring "local f = ... f(f)", 3)) - 1

return M
