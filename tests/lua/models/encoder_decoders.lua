-- The models in models/ that read a text and write another one, against transformers
-- (tests/golden/make_encoder_decoders.py): logits, gradients, training, and folders read and
-- written in the format of transformers.
local files = require "nn.io.files"
local nn = require "nn"
local t = require "nn.test"
local root = require("nn.host").root
package.path = root .. "/tests/lua/support/?.lua;" .. package.path
local small = require "small_models"
local golden = root .. "/tests/golden/encoder_decoders/"
local folder = t.folder()
local case = small.cases(golden, folder)

-- The decoder's inputs for targets (2,9): the id 0, then the targets without the last.
local function inputs_of(targets)
  local rows = targets:table()
  for _, row in ipairs(rows) do
    table.insert(row, 1, 0)
    row[#row] = nil
    for i, id in ipairs(row) do row[i] = math.max(id, 0) end
  end
  return nn.tensor(rows, {dtype = "i32"})
end

for _, name in ipairs(small.names(golden)) do
  case(name, "logits equal those of transformers to 1e-5", function(path, expected)
    local model = nn.load_hf(path)
    local inputs = inputs_of(expected.targets)
    local function compare(ids, decoder_inputs, mask, what)
      local logits = model(ids, nil, {mask = mask, inputs = decoder_inputs})
      small.close(logits, expected.logits, 1e-5, what)
    end
    compare(expected.ids, inputs, expected.mask, "logits")
    compare(expected.ids:retile {1, 6}, inputs:retile {2, 4}, expected.mask:retile {2, 7},
            "logits of tiles")
  end)

  case(name, "100 greedy tokens are those of transformers, for texts of different lengths",
       function(path, expected)
    local model, texts, wanted = nn.load_hf(path), {}, expected.greedy:table()
    for r, row in ipairs(expected.ids:table()) do
      texts[r] = {unpack(row, 1, expected.mask:slice(1, r, r):sum():item())}
      table.remove(wanted[r], 1)                                 -- the id 0
    end
    local how = {tokens = 100, temperature = 0}
    t.same(nn.generate(model, texts, how), wanted)
    t.same(nn.generate(model, texts[2], how), wanted[2])
    how.logprobs, how.tokens = true, 30                          -- without the pipeline
    local ids, info = nn.generate(model, texts, how)
    t.same(ids[1], {unpack(wanted[1], 1, 30)})
    local inputs = nn.tensor({{0, unpack(wanted[1], 1, 29)}}, {dtype = "i32"})
    local logits = model(nn.tensor({texts[1]}, {dtype = "i32"}), nil, {inputs = inputs})
    local all = nn.log_softmax(logits)
    for i = 1, 30 do
      t.near(info.logprobs[1][i], all:at(1, i, wanted[1][i] + 1), {abs = 1e-4})
    end
  end)

  case(name, "FLOPs are those that PyTorch counts", function(path, expected)
    local model = nn.load_hf(path)
    t.same(2 * 20 * model:flops_per_token(20, 9), expected.flops:item())
  end)

  case(name, "gradients equal those of transformers to 1e-4", function(path, expected, shapes)
    local model = nn.load_hf(path)
    model(expected.ids, expected.targets, {mask = expected.mask}):backward()
    small.check_gradients(model, path, expected, shapes)
  end)

  case(name, "20 steps of training give the losses of PyTorch to 1e-4, and its norms to 5e-4",
       function(path, expected)
    local function of_batch(key, i, time)
      return expected["train/" .. key]:slice(1, i, i):reshape(3, time)
    end
    local model = nn.load_hf(path)
    small.check_training(model, expected, function(i)
      return of_batch("ids", i, 11), of_batch("targets", i, 7), of_batch("mask", i, 11)
    end, function(ids, targets, mask) return model(ids, targets, {mask = mask}) end)
  end)

  case(name, "a saved folder has the tensors and the settings of the one it was loaded from",
       small.check_saved)

  case(name, "a checkpoint gives the logits of the model that it stores", function(path, expected)
    local model = nn.load_hf(path)
    nn.save_checkpoint(path .. "/run", {step = 1, model = model, config = {model = model.config}})
    local again, options = nn.load_model(path .. "/run"), {inputs = inputs_of(expected.targets)}
    t.same(again(expected.ids, nil, options):table(), model(expected.ids, nil, options):table())
  end)
end

t.case("wrong settings, inputs and files are refused with what is needed", function()
  local T5 = require "models.t5"
  local model = T5 {layers = 1, heads = 2, embd = 8, vocab = 20}
  local ids = nn.tensor({{3, 1, 4}}, {dtype = "i32"})
  t.fails(function() model(ids) end, "the decoder's inputs are nil")
  t.fails(function() model(ids, ids, {inputs = ids}) end, "follow from the targets")
  t.fails(function() model(ids, nn.zeros({3}, {dtype = "i32"})) end, "the targets are (3)")
  t.fails(function()
    require("nn.models.conversation").new(model, {chat = function() end}, {})
  end, "T5 does not continue texts, so it has no conversations")
  t.fails(function() nn.generate(model, {}) end, "give at least one token")
  t.fails(function() model:caches(1) end, "tokens is nil; a whole number of at least 1 is needed")
  t.fails(function() model:flops_per_token "4" end, "the number of tokens is 4; a number is needed")
  t.fails(function()
    model:next(ids:slice(2, 1, 1), model:caches(1, 4), nn.zeros({1}, {dtype = "i32"}))
  end, "the text is nil; the result of model:read is needed")
  local path = folder .. "/refused"
  nn.save_hf(path, model)
  local config = files.parse_json(files.read(path .. "/config.json"))
  config.feed_forward_proj = "gated-relu"
  files.write(path .. "/config.json", files.json(config, ""))
  t.fails(function() nn.load_hf(path) end, "feed_forward_proj is gated-relu; relu, gated-gelu")
  local status, output = t.shell(("cd '%s'; $NNLUA %s/recipes/train.lua model=t5 2>&1"):format(
    folder, root))
  t.check(status == 1 and output:find("T5, which reads a text and writes another one; "
          .. "recipes/train_span.lua trains it", 1, true), output)
end)

t.finish()
