-- Ctrl-R: searching the history while typing what to look for. The editor shows the entry found;
-- any other key takes it over.
local M = {}

--- start(editor, step): searches back (-1) or forth (1) from the entry that is shown.
function M.start(editor, step)
  local place = editor.place or #editor.history.entries + 1
  editor.search = {query = "", place = place, step = step, text = editor.text, at = editor.at}
end

-- Shows the next entry from `from` that contains the query; without one, says so and stays.
local function look(editor, from)
  local s = editor.search
  if s.query == "" then return end
  local place = editor.history:find(from, s.step, function(entry)
    return entry:find(s.query, 1, true) ~= nil
  end)
  s.failed = place == nil
  if not place then return end
  s.place = place
  local entry = editor.history.entries[place]
  s.from, s.to = entry:find(s.query, 1, true)
  editor:set(entry, s.to)
end

local function turn(editor, step)
  local s = editor.search
  if s.query == "" and editor.last_query then
    s.query, s.step = editor.last_query, step
    return look(editor, s.place)
  end
  s.step = step
  look(editor, s.place)
end

local function change_query(editor, query)
  local s = editor.search
  s.query = query
  if query == "" then
    s.place, s.failed, s.from = #editor.history.entries + 1, false, nil
    return editor:set(s.text, s.at)
  end
  look(editor, s.place - s.step)        -- the entry shown may still match
end

local function leave(editor)
  local s = editor.search
  editor.last_query = s.query ~= "" and s.query or editor.last_query
  if s.from then editor.place, editor.draft = s.place, s.text end
  editor.search = nil
end

--- key(editor, key) -> nil, or the key if it ends the search and is to be used as always.
function M.key(editor, key)
  local s = editor.search
  if type(key) == "table" and key[1] == "text" then
    change_query(editor, s.query .. key[2])
  elseif key == "C-r" or key == "C-s" then
    turn(editor, key == "C-r" and -1 or 1)
  elseif key == "backspace" then
    change_query(editor, s.query:gsub("[%z\1-\127\194-\244][\128-\191]*$", ""))
  elseif key == "C-g" or key == "escape" or key == "C-c" then
    editor:set(s.text, s.at)
    editor.search = nil
  else
    leave(editor)
    return key
  end
end

return M
