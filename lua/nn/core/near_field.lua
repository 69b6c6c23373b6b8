-- Misspelt fields of modules: layer.wieght is an error that names `weight`. An object may lack a
-- field on purpose (a layer without a bias), so a name is only refused if it differs by one letter
-- from a field or method that the object has, and the class's init does not mention it.

local jit_util = require "jit.util"
local lib = require "nn.base.capi"
local suggest = require "nn.base.suggest"

local M = {}
local mentioned = setmetatable({}, {__mode = "k"})   -- [init] = {name = true}
local accepted = setmetatable({}, {__mode = "k"})    -- [class] = {name = true}, checked before

-- The strings in the code of a function: the names of the fields that it reads and sets.
local function strings_of(f)
  if mentioned[f] then return mentioned[f] end
  local names, i = {}, -1
  while true do
    local constant = jit_util.funck(f, i)
    if constant == nil then break end
    if type(constant) == "string" then names[constant] = true end
    i = i - 1
  end
  mentioned[f] = names
  return names
end

-- Whether the names differ only in digits: w1 and w2 are different fields, not mistakes.
local function same_but_digits(a, b) return a:gsub("%d", "") == b:gsub("%d", "") end

--- check(object, class, methods, key): raises an error if the field `key`, which the object lacks,
--- is misspelt. methods: those that all classes share.
function M.check(object, class, methods, key)
  if type(key) ~= "string" or #key < 4 or key:find "^_" then return end
  local known, init = accepted[class], class.init
  if known and known[key] then return end
  if type(init) == "function" and strings_of(init)[key] then return end
  for _, names in ipairs {object, class, methods} do
    local near = suggest.within(key, names, 1)
    if near and not near:find "^_" and not same_but_digits(near, key) then
      lib.misuse("%s has no field '%s'; did you mean '%s'? (rawget(object, '%s') gives nil)",
                 class.class_name, key, near, key)
    end
  end
  accepted[class] = known or {}
  accepted[class][key] = true
end

return M
