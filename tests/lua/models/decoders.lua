-- The decoders in models/ against transformers (tests/golden/make_decoders.py): logits, gradients,
-- training, generation, and folders read and written in the format of transformers.
local files = require "nn.io.files"
local nn = require "nn"
local t = require "nn.test"
local root = require("nn.host").root
package.path = root .. "/tests/lua/support/?.lua;" .. package.path
local small = require "small_models"
local golden = root .. "/tests/golden/decoders/"
local case, close = small.cases(golden, t.folder()), small.close

-- Continues prompts with and without kept caches, to the same ids, and log-probabilities to 1e-4.
-- ids: at least 60.
local function check_kept(model, ids)
  local cache = {}
  local function continued(prompt, read)                  -- read: how many of them the model reads
    local how = {tokens = 12, temperature = 0, logprobs = true, stop_ids = {}}
    local out, info = nn.generate(model, prompt, how)
    how.cache = cache
    local same, about = nn.generate(model, prompt, how)
    t.same(same, out)
    t.near(about.logprobs, info.logprobs, {abs = 1e-4})
    t.same(about.read, read)
    return out
  end
  local function with(list, more)
    list = {unpack(list)}
    for _, id in ipairs(more) do list[#list + 1] = id end
    return list
  end
  local first = continued({unpack(ids, 1, 5)}, 5)
  local second = continued(with(first, {3, 9, 4}), 1 + 3)             -- the newest id is not cached
  continued(second, 1)
  continued(with({unpack(second, 1, 10)}, {0, 0}), 2)                 -- the rest differs
  local longest = with(second, {unpack(ids, 1, 60)})                  -- needs longer caches
  continued(longest, #longest - 10)
  continued({unpack(ids, 2, 4)}, 3)
end

for _, name in ipairs(small.names(golden)) do
  case(name, "logits equal those of transformers to 1e-5", function(path, expected)
    local model = nn.load_hf(path)
    close(model(expected.ids), expected.logits, 1e-5, "logits")
    close(model(expected.ids:retile {1, 6}), expected.logits, 1e-5, "logits of tiles")
  end)

  case(name, "100 greedy tokens are those of transformers, with and without caches",
       function(path, expected)
    local model, wanted = nn.load_hf(path), expected.greedy:table()
    local prompt, how = {unpack(wanted, 1, 5)}, {tokens = 100, temperature = 0}
    t.same(nn.generate(model, prompt, how), wanted)
    local shorter = {unpack(wanted, 1, 3)}                       -- prompts of different lengths
    t.same(nn.generate(model, {prompt, shorter}, how)[1], wanted)
    model.caches = false
    how.tokens = 12
    t.same(nn.generate(model, prompt, how), {unpack(wanted, 1, 17)})
  end)

  case(name, "with kept caches only what is new is read, and the tokens are the same",
       function(path, expected)
    local model, ids = nn.load_hf(path), expected.greedy:table()
    check_kept(model, ids)
    check_kept(nn.quantize_weights(model), ids)
  end)

  case(name, "gradients equal those of transformers to 1e-4", function(path, expected, shapes)
    local model = nn.load_hf(path)
    local ids, time = expected.ids, expected.ids:dim(2)
    model(ids:slice(2, 1, time - 1):clone(), ids:slice(2, 2, time):clone()):backward()
    small.check_gradients(model, path, expected, shapes)
  end)

  case(name, "20 steps of training give the losses of PyTorch to 1e-4, and its norms to 5e-4",
       function(path, expected)
    local model = nn.load_hf(path)
    small.check_training(model, expected, function(i)
      local ids = expected["train/ids"]:slice(1, i, i):reshape(3, 11)
      return ids:slice(2, 1, 10):clone(), ids:slice(2, 2, 11):clone()
    end, model)
  end)

  case(name, "a saved folder has the tensors and the settings of the one it was loaded from",
       small.check_saved)
end

t.case("settings that transformers does not have are not saved as others", function()
  local Llama = require "models.llama"
  local size = {layers = 2, heads = 2, embd = 16, vocab = 20, context = 8}
  for _, more in ipairs {{window = 4, window_from = 1}, {window = 4, bias = "attention"},
                         {qk_norm = true, bias = "qkv"}, {qk_norm = true, bias = "all"}} do
    for name, value in pairs(size) do more[name] = value end
    t.fails(function() nn.save_hf(t.folder() .. "/new", Llama(more)) end,
            "transformers has no model of this bias, qk_norm and window")
  end
  local path = t.folder() .. "/neo"
  size.window = 0
  nn.save_hf(path, require "models.gpt_neo" (size))
  t.same(files.parse_json(files.read(path .. "/config.json")).window_size, size.context)
end)

t.finish()
