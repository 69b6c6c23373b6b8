-- Bounds the work of a chat template: a hostile one of a few lines could compute for years.
local lib = require "nn.base.capi"

local M = {MOST = 5e6}         -- steps: about 3 s. 10000 messages in ChatML take 0.25 million
local ELEMENTS, BYTES = 4, 64  -- of a list, and of a text, that take as long as a step
local count, next_check = 0, lib.CHECK_EVERY

--- start(): a template begins.
function M.start() count, next_check = 0, lib.CHECK_EVERY end

--- take(n): counts n (1) steps: an expression, a statement, a pass of a loop. Errors: too many in
--- all; "interrupted".
function M.take(n)
  count = count + (n or 1)
  if count < next_check then return end
  next_check = count + lib.CHECK_EVERY
  lib.check_interrupt()
  if count > M.MOST then
    lib.deny("the chat template takes more than %d steps; it, or the conversation, is too long",
             M.MOST)
  end
end

--- look(elements): counts a look at so many elements of a list. Errors: as take().
function M.look(elements) M.take(elements / ELEMENTS) end

--- read(text): counts a look at a text. Errors: as take().
function M.read(text) M.take(#text / BYTES) end

return M
