-- A binary heap in a list: the first element is the one that precedes all others. before(a, b):
-- whether a precedes b; it must be the same function in every call on a heap.
local M = {}

--- push(heap, value, before) adds a value.
function M.push(heap, value, before)
  local at = #heap + 1
  while at > 1 do
    local parent = math.floor(at / 2)
    if not before(value, heap[parent]) then break end
    heap[at] = heap[parent]
    at = parent
  end
  heap[at] = value
end

--- replace(heap, value, before) replaces the first element by a value.
function M.replace(heap, value, before)
  local size, at = #heap, 1
  while true do
    local child = 2 * at
    if child > size then break end
    if child < size and before(heap[child + 1], heap[child]) then child = child + 1 end
    if not before(heap[child], value) then break end
    heap[at] = heap[child]
    at = child
  end
  heap[at] = value
end

--- pop(heap, before) -> the first element, which is removed; nil if the heap is empty.
function M.pop(heap, before)
  local first, size = heap[1], #heap
  local last = heap[size]
  heap[size] = nil
  if size > 1 then M.replace(heap, last, before) end
  return first
end

return M
