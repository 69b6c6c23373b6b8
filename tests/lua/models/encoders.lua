-- The models in models/ that read in both directions, against transformers
-- (tests/golden/make_encoders.py): logits, gradients, training, and folders read and written in the
-- format of transformers.
local files = require "nn.io.files"
local nn = require "nn"
local t = require "nn.test"
local root = require("nn.host").root
package.path = root .. "/tests/lua/support/?.lua;" .. package.path
local small = require "small_models"
local golden = root .. "/tests/golden/encoders/"
local folder = t.folder()
local case = small.cases(golden, folder)

-- Logits with zeros at padding, as in the file.
local function without_padding(logits, mask)
  if #logits.shape == 2 then return logits end
  return logits * mask:to "f32":unsqueeze(3)
end

-- The element `name` of batch i of the training, (3,11), or its labels, (3).
local function of_batch(expected, name, i)
  local x = expected["train/" .. name]:slice(1, i, i)
  return x:dim(2) == 33 and x:reshape(3, 11) or x:reshape(3)
end

for _, name in ipairs(small.names(golden)) do
  case(name, "logits equal those of transformers to 1e-5", function(path, expected)
    local model = nn.load_hf(path)
    local function compare(ids, mask, types, what)
      local logits = model(ids, nil, {mask = mask, types = types})
      small.close(without_padding(logits, mask), expected.logits, 1e-5, what)
    end
    compare(expected.ids, expected.mask, expected.types, "logits")
    local cuts = {1, 6}
    compare(expected.ids:retile(cuts), expected.mask:retile {2, 7}, expected.types:retile(cuts),
            "logits of tiles")
  end)

  case(name, "gradients equal those of transformers to 1e-4", function(path, expected, shapes)
    local model = nn.load_hf(path)
    local loss = model(expected.ids, expected.targets,
                       {mask = expected.mask, types = expected.types, scale = 2})
    loss = loss * 0.5
    loss:backward()
    small.check_gradients(model, path, expected, shapes)
  end)

  case(name, "20 steps of training give the losses of PyTorch to 1e-4, and its norms to 5e-4",
       function(path, expected)
    local model = nn.load_hf(path)
    small.check_training(model, expected, function(i)
      return of_batch(expected, "ids", i), of_batch(expected, "targets", i),
             of_batch(expected, "mask", i), of_batch(expected, "types", i)
    end, function(ids, targets, mask, types)
      return model(ids, targets, {mask = mask, types = types})
    end)
  end)

  case(name, "a saved folder has the tensors and the settings of the one it was loaded from",
       small.check_saved)

  case(name, "a checkpoint gives the logits of the model that it stores", function(path, expected)
    local model = nn.load_hf(path)
    nn.save_checkpoint(path .. "/run", {step = 1, model = model, config = {model = model.config}})
    local again = nn.load_model(path .. "/run")
    local options = {mask = expected.mask, types = expected.types}
    t.same(again(expected.ids, nil, options):table(), model(expected.ids, nil, options):table())
  end)
end

t.case("padding changes nothing, whatever its ids are", function()
  local model = require "models.bert" {layers = 2, heads = 2, embd = 16, vocab = 30, context = 12}
  local i32 = {dtype = "i32"}
  local text = nn.tensor({{2, 9, 4, 7}}, i32)
  local padded = nn.tensor({{2, 9, 4, 7, 0, 5}}, i32)
  local mask = nn.tensor({{1, 1, 1, 1, 0, 0}}, i32)
  small.close(model(padded, nil, {mask = mask}):slice(2, 1, 4), model(text), 1e-6, "logits")
end)

t.case("the released names of BERT's norms are read", function()
  local path, old = folder .. "/released", {}
  local model = require "models.bert" {layers = 1, heads = 2, embd = 8, vocab = 20, context = 6}
  nn.save_hf(path, model)
  for name, x in pairs(nn.load_safetensors(path .. "/model.safetensors")) do
    old[name:gsub("LayerNorm.weight", "LayerNorm.gamma"):gsub("LayerNorm.bias",
                                                              "LayerNorm.beta")] = x
  end
  nn.save_safetensors(path .. "/model.safetensors", old, {format = "pt"})
  local ids = nn.tensor({{3, 1, 4}}, {dtype = "i32"})
  t.same(nn.load_hf(path)(ids):table(), model(ids):table())
end)

t.case("nn.fill gives the likeliest tokens for masks, and the classes of a text", function()
  local words = nn.vocabulary("char", "hello")
  local size = {layers = 1, heads = 2, embd = 8, vocab = words.size + 1}
  local model = require "models.bert"(size)
  local ids = nn.tensor({{1, words.size, 2, words.size}}, {dtype = "i32"})
  local text = words:decode {1} .. "[MASK]" .. words:decode {2} .. "[MASK]"
  local filled = nn.fill(model, words, text, {top = 3})
  t.same({#filled, #filled[1]}, {2, 3})
  local weights = nn.softmax(model(ids))
  for i, place in ipairs {2, 4} do
    local best = weights:slice(2, place, place):argmax():item()
    t.same(filled[i][1].id, best)
    t.near(filled[i][1].probability, weights:at(1, place, best + 1), {rel = 1e-5})
    t.check(filled[i][1].probability >= filled[i][2].probability)
  end
  t.fails(function() nn.fill(model, words, "hello") end, "no masked token; write [MASK] for it")
  t.fails(function() nn.fill(require "models.gpt2" {layers = 1, heads = 1, embd = 8, vocab = 9,
                                                    context = 4}, words, "h") end, "such as BERT")
  size.labels = 3
  local classes = nn.fill(require "models.bert"(size), words, "hello")
  t.same({#classes, #classes[1]}, {1, 3})
  size.problem_type = "multi_label_classification"
  local several = require "models.bert"(size)
  nn.save_hf(folder .. "/several", several)
  several = nn.load_hf(folder .. "/several")
  local text_ids = nn.tensor({words:ids "hello"}, {dtype = "i32"})
  local each = nn.sigmoid(several(text_ids))
  for _, class in ipairs(nn.fill(several, words, "hello")[1]) do
    t.near(class.probability, each:at(1, class.id + 1), {rel = 1e-5})
  end
  t.fails(function() several(text_ids, nn.tensor({1}, {dtype = "i32"})) end,
          "its problem_type is multi_label_classification, which has no loss here")
end)

t.case("dropout is applied in training only", function()
  local model = require "models.bert" {layers = 1, heads = 2, embd = 8, vocab = 20, dropout = 0.5}
  local ids = nn.tensor({{3, 1, 4}}, {dtype = "i32"})
  local first = model(ids):table()
  t.check(files.json(first) ~= files.json(model(ids):table()))
  nn.training(false)
  first = model(ids):table()
  t.same(model(ids):table(), first)
  nn.training(true)
end)

t.case("wrong settings, inputs and files are refused with what is needed", function()
  local Bert = require "models.bert"
  local size = {layers = 1, heads = 2, embd = 8, vocab = 20, context = 6}
  local model, i32 = Bert(size), {dtype = "i32"}
  local ids = nn.tensor({{3, 1, 4}}, i32)
  t.fails(function() Bert {layers = 1, heads = 3, embd = 8} end, "not a multiple of heads = 3")
  t.fails(function() Bert {layers = 1, heads = 2, embd = 8, family = "albert"} end, "bert, roberta")
  t.fails(function() model(nn.zeros({1, 7}, i32)) end, "more than the model's context of 6")
  t.fails(function() model(ids, nil, {mask = nn.ones({1, 2}, i32)}) end, "mask is (1,2)")
  t.fails(function() model(ids, nil, {types = nn.ones({3}, i32)}) end, "the types are (3)")
  t.fails(function() model(ids, nil, {types = nn.full({1, 3}, 2, i32)}):table() end, "2")
  t.fails(function() nn.generate(model, {3}) end, "a decoder, which writes from left to right, or")
  local path = folder .. "/refused"
  nn.save_hf(path, model)
  local function refused(change, problem)
    local config = files.parse_json(files.read(path .. "/config.json"))
    change(config)
    files.write(path .. "/config.json", files.json(config, ""))
    t.fails(function() nn.load_hf(path) end, problem)
    nn.save_hf(path, model)
  end
  refused(function(c) c.architectures = {"BertForTokenClassification"} end,
          "architectures is BertForTokenClassification; nnlua's Bert needs a name that ends in")
  refused(function(c) c.hidden_act = "relu" end, "hidden_act is 'relu'; nnlua's Bert needs 'gelu'")
  refused(function(c) c.max_position_embeddings = "many" end, "max_position_embeddings is 'many'")
  refused(function(c) c.type_vocab_size = "two" end, "type_vocab_size is 'two'")
  refused(function(c) c.is_decoder = true end, "is_decoder is true")
end)

t.finish()
