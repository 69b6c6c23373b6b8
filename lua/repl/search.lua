-- Ctrl-R: incremental search in the history. The editor shows the entry found; any other key ends
-- the search and edits that entry.
local M = {}

--- start(editor, step): searches back (-1) or forward (1) from the entry that is shown.
function M.start(editor, step)
  local index = editor.index or #editor.history.entries + 1
  editor.search = {query = "", index = index, step = step, text = editor.text, at = editor.at}
end

-- Shows the next entry from `from` that contains the query, or sets `failed`.
local function find(editor, from)
  local s = editor.search
  if s.query == "" then return end
  local index = editor.history:find(from, s.step, function(entry)
    return entry:find(s.query, 1, true) ~= nil
  end)
  s.failed = index == nil
  if not index then return end
  s.index = index
  local entry = editor.history.entries[index]
  s.from, s.to = entry:find(s.query, 1, true)
  editor:set(entry, s.to)
end

-- Finds the next match in a direction; an empty query becomes the last one.
local function next_match(editor, step)
  local s = editor.search
  if s.query == "" then s.query = editor.last_query or "" end
  s.step = step
  find(editor, s.index)
end

local function change_query(editor, query)
  local s = editor.search
  s.query = query
  if query == "" then
    s.index, s.failed, s.from = #editor.history.entries + 1, false, nil
    return editor:set(s.text, s.at)
  end
  find(editor, s.index - s.step)        -- the entry shown may still match
end

local function accept(editor)
  local s = editor.search
  editor.last_query = s.query ~= "" and s.query or editor.last_query
  if s.from then editor.index, editor.draft = s.index, s.text end
  editor.search = nil
end

--- key(editor, key) -> nil, or the key where it ends the search and keeps its usual meaning.
function M.key(editor, key)
  local s = editor.search
  if type(key) == "table" and key[1] == "text" then
    change_query(editor, s.query .. key[2])
  elseif key == "C-r" or key == "C-s" then
    next_match(editor, key == "C-r" and -1 or 1)
  elseif key == "backspace" then
    change_query(editor, s.query:gsub("[%z\1-\127\194-\244][\128-\191]*$", ""))
  elseif key == "C-g" or key == "escape" or key == "C-c" then
    editor:set(s.text, s.at)
    editor.search = nil
  else
    accept(editor)
    return key
  end
end

return M
