-- Misspelt fields of modules: layer.wieght is an error that names `weight`. An object may lack a
-- field on purpose (a layer without a bias), so a name is only refused if it is a field or method
-- of the object with two letters swapped, or one inside doubled, added or left out, and if the
-- class's init does not mention it.

local jit_util = require "jit.util"
local lib = require "nn.base.capi"

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

-- Whether `name` is `field` with two neighbouring letters swapped, or a letter inside added or left
-- out. Other near names are fields of their own: block and blocks, q_norm and k_norm, and those
-- with another number: layer1 and layer11.
local function is_misspelt(name, field)
  local longer, shorter = name, field
  if #name < #field then longer, shorter = field, name end
  for i = 1, #longer - 1 do
    local head, a, b, tail = longer:sub(1, i - 1), longer:sub(i, i), longer:sub(i + 1, i + 1),
                             longer:sub(i + 2)
    local swapped = #name == #field and not b:find "%d" and head .. b .. a .. tail == shorter
    local inside = i > 1 and #shorter > 3 and head .. b .. tail == shorter
    if not a:find "%d" and (swapped or inside) then return true end
  end
  return false
end

--- check(object, class, methods, key): raises an error if the field `key`, which the object lacks,
--- is misspelt. methods: those that all classes share.
function M.check(object, class, methods, key)
  if type(key) ~= "string" or #key < 4 or key:find "^_" then return end
  local known, init = accepted[class], class.init
  if known and known[key] then return end
  if type(init) == "function" and strings_of(init)[key] then return end
  for _, names in ipairs {object, class, methods} do
    for field in pairs(names) do
      if type(field) == "string" and field:find "^[^_]" and is_misspelt(key, field) then
        lib.misuse("%s has no field '%s'; did you mean '%s'? (rawget(object, '%s') gives nil)",
                   class.class_name, key, field, key)
      end
    end
  end
  accepted[class] = known or {}
  accepted[class][key] = true
end

return M
