-- Masked language modelling: what nn.mask_tokens hides, and recipes/train_masked.lua.
local files = require "nn.io.files"
local nn = require "nn"
local root = require("nn.host").root
local t = require "nn.test"
local folder = t.folder()
local text = ("To be, or not to be, that is the question.\n"):rep(200)
files.write(folder .. "/text.txt", text)

-- A WordPiece tokenizer with BERT's special tokens and the letters of the text.
local vocabulary = {}
for i, word in ipairs {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"} do vocabulary[word] = i - 1 end
local count = 5
for letter in ("tobernahisqu,."):gmatch "." do
  vocabulary[letter], vocabulary["##" .. letter] = count, count + 1
  count = count + 2
end
files.make_folder(folder .. "/words")
local special = {}
for word, id in pairs(vocabulary) do
  if id < 5 then
    special[#special + 1] = {id = id, content = word, special = true, single_word = false,
                             lstrip = false, rstrip = false, normalized = false}
  end
end
table.sort(special, function(a, b) return a.id < b.id end)
files.write(folder .. "/words/tokenizer.json", files.json({
  version = "1.0", added_tokens = special,
  normalizer = {type = "BertNormalizer", clean_text = true, handle_chinese_chars = true,
                lowercase = true},
  pre_tokenizer = {type = "BertPreTokenizer"},
  model = {type = "WordPiece", unk_token = "[UNK]", continuing_subword_prefix = "##",
           max_input_chars_per_word = 100, vocab = vocabulary},
}, ""))

local function data_of(options)
  local settings = {text = folder .. "/text.txt", batch = 8, vocabulary = folder .. "/words"}
  local data = nn.data(settings, {context = 40, seed = options and options.seed})
  return data, nn.mask_tokens(data, options and {share = options.share})
end

t.case("15 % of the tokens are predicted: 80 % masked, 10 % random, 10 % themselves", function()
  local data, vocab = data_of()
  t.same(vocab, count)
  local masked, same, other = 0, 0, 0
  for _ = 1, 100 do
    local x, y = data.train:batch()
    local ids, targets = x:table(), y:table()
    for row = 1, 8 do
      local predicted = 0
      for i = 1, 40 do
        local id, target = ids[row][i], targets[row][i]
        t.check(id >= 0 and id < count)
        if target == -100 then
          t.same(id, i == 1 and 2 or i == 40 and 3 or id)
        else
          t.check(i > 1 and i < 40 and target > 4, "a special token is predicted")
          predicted = predicted + 1
          if id == 4 then masked = masked + 1
          elseif id == target then same = same + 1
          else other = other + 1 end
        end
      end
      t.same(predicted, 6)
      t.same(ids[row][1], 2)
      t.same(ids[row][40], 3)
    end
  end
  local all = masked + same + other                      -- 4800; bounds: 4 standard deviations
  t.near(masked / all, 0.8 + 0.1 / count, {abs = 4 * math.sqrt(0.8 * 0.2 / all)})
  t.near(same / all, 0.1 + 0.1 / count, {abs = 4 * math.sqrt(0.1 * 0.9 / all)})
  t.near(other / all, 0.1 - 0.2 / count, {abs = 4 * math.sqrt(0.1 * 0.9 / all)})
end)

t.case("the tokens around the masked ones and the targets are those of the text", function()
  local plain = nn.data({text = folder .. "/text.txt", batch = 8, vocabulary = folder .. "/words"},
                        {context = 40})
  local data = data_of {share = 0.5}
  local original, ids, targets = plain.train:batch(), data.train:batch()
  for row = 1, 8 do
    for i = 2, 39 do
      local target = targets:at(row, i)
      t.same(target == -100 and ids:at(row, i) or target, original:at(row, i))
    end
  end
end)

t.case("masks depend on the seed and the batch only", function()
  local a, b = data_of(), data_of()
  t.same(a.train:peek():table(), a.train:batch():table())
  local state, second = a.train:state(), a.train:batch()
  b.train:set_state(state)
  t.same(b.train:batch():table(), second:table())
  t.check(a.train:batch():ne(second):sum():item() > 0)
  local other = data_of {seed = 5}
  t.check(files.json(other.val:windows(1)():table()) ~= files.json(a.val:windows(1)():table()))
  t.same(b.val:windows(1)():table(), a.val:windows(1)():table())
  local all, rows = {}, 0
  for ids, targets in a.val:windows() do
    for row = 1, ids:dim(1) do
      rows = rows + 1
      all[files.json(targets:slice(1, row, row):ne(-100):to "i32":table())] = true
    end
  end
  local different = 0
  for _ in pairs(all) do different = different + 1 end
  t.check(different > rows / 2, "windows have the same mask")
end)

t.case("a vocabulary without a mask token gets one more id; none is refused", function()
  local data = nn.data({text = folder .. "/text.txt", batch = 2}, {context = 20})
  t.same(nn.mask_tokens(data, {share = 1}), data.vocab + 1)
  local ids, targets = data.train:batch()
  t.check(ids:eq(data.vocab):sum():item() > 0 and targets:eq(-100):sum():item() == 0)
  data.vocabulary = nil
  t.fails(function() nn.mask_tokens(data) end, "give data.vocabulary=FOLDER")
  t.fails(function() nn.mask_tokens(data, {share = 0}) end, "share is 0")
  t.fails(function() nn.mask_tokens {} end, "a result of nn.data is needed")
end)

local tiny = "data.text=text.txt model.layers=2 model.heads=2 model.embd=16 model.context=16 "
  .. "data.batch=4 data.accum=2 "

local function recipe(words, status_wanted, name)
  local status, output = t.shell(
    ("cd '%s'; timeout -k 5 120 $NNLUA %s/recipes/%s.lua %s 2>&1"):format(
      folder, root, name or "train_masked", words))
  t.check(status == (status_wanted or 0), output)
  return output
end

t.case("a run is planned and trained, and resumes to the same bits", function()
  t.check(recipe(tiny .. "--plan"):find "^parameters")
  local output = recipe(tiny .. "out=a steps=30 save_every=15 keep=9 optim.lr=0.01 "
                        .. "schedule.warmup=1 model.dropout=0.1 eval_every=10")
  t.check(output:find "%d of 2 masked tokens are right", output)
  t.check(tonumber(output:match "done.*val_loss (%d%.%d+)") < 3, output)
  recipe "out=b resume=a/checkpoint-000015"
  for _, file in ipairs {"model.safetensors", "optimizer.safetensors"} do
    t.check(files.read(folder .. "/a/checkpoint-000030/" .. file)
            == files.read(folder .. "/b/checkpoint-000030/" .. file), file .. " differs")
  end
end)

t.case("init continues a model of transformers with its tokenizer", function()
  local Bert = require "models.bert"
  nn.save_hf(folder .. "/start", Bert {layers = 1, heads = 2, embd = 16, vocab = count, pad = 1,
                                       context = 24, family = "roberta", types = 1},
             nn.tokenizer(folder .. "/words"))
  recipe("preset=finetune init=start data.text=text.txt data.context=16 data.batch=2 steps=2 "
         .. "optim.lr=0 schedule.min_lr=0 out=same")
  local before, after = nn.load_model(folder .. "/start"), nn.load_model(folder .. "/same")
  t.same(after.config, before.config)
  t.same(after.tok.weight:table(), before.tok.weight:table())
end)

t.case("a trained model is evaluated and fills masked tokens", function()
  local scores = recipe("model=a text=text.txt context=12 tokens=240", 0, "gpt2_eval")
  t.check(scores:find("20 windows of 12 tokens, 15 % hidden", 1, true), scores)
  t.check(tonumber(scores:match "loss (%S+)") < 3, scores)
  t.check(recipe("model=a --plan", 0, "gpt2_eval"):find "parameters")
  local filled = recipe("model=a prompt='to [MASK]e' top_k=3", 0, "gpt2_generate")
  t.check(select(2, filled:gsub("  1 %b\"\"\n", "")) == 3, filled)
  t.check(recipe("model=a prompt='to be'", 1, "gpt2_generate"):find "no masked token")
end)

t.case("a script trains a model that classifies texts, as the recipes' error says", function()
  nn.save_hf(folder .. "/classes", require "models.bert" {layers = 1, heads = 2, embd = 8,
                                                          vocab = 300, labels = 3})
  nn.save_hf(folder .. "/headless", require "models.bert" {layers = 1, heads = 2, embd = 8,
                                                           vocab = 300, labels = -1})
  local model = nn.load_hf(folder .. "/classes")
  local optim = nn.AdamW(model, {lr = 0.01})
  local ids = nn.tensor({{1, 2, 3}, {4, 5, 6}, {7, 8, 9}}, {dtype = "i32"})
  local labels = nn.tensor({0, 1, 2}, {dtype = "i32"})
  local step = nn.compile(function(x, y)
    optim:zero_grad()
    local loss = model(x, y)
    loss:backward()
    return loss, optim:step()
  end)
  for _ = 1, 60 do step(ids, labels) end
  t.check(step(ids, labels):item() < 0.1, "the loss of three texts that it has seen 60 times")
  nn.save_hf(folder .. "/trained", model)
  t.same(nn.load_hf(folder .. "/trained")(ids):argmax(-1):table(), {0, 1, 2})
end)

t.case("other models and settings are refused", function()
  local function refused(words, message)
    local output = recipe(words, 1)
    t.check(output:find(message, 1, true), output)
  end
  refused("model=gpt2 data.text=text.txt",
          "model=gpt2 is GPT2, which continues texts; recipes/train.lua trains it")
  local advice = "init=classes is Bert, which classifies texts there (3 classes); no recipe trains "
    .. "that. A script can: model(ids, labels) is the loss, with a label for each text"
  for _, name in ipairs {"train_masked", "train", "train_span", "gpt2_train"} do
    local output = recipe("init=classes data.text=text.txt", 1, name)
    t.check(output:find("this recipe trains ", 1, true), output)
    t.check(output:find(advice .. "\n", 1, true), output)
    local headless = recipe("init=headless data.text=text.txt", 1, name)
    t.check(headless:find("is Bert, which has no head there; no recipe trains that", 1, true),
            headless)
  end
  refused("model=roberta", "it is a kind of Bert: give model=bert model.family=roberta")
  local size = nn.vocabulary("char", text).size
  refused(tiny .. "out=c model.vocab=" .. size,
          ("model.vocab is %d, but the mask token needs %d"):format(size, size + 1))
  local status, output = t.shell(("cd '%s'; $NNLUA %s/recipes/train.lua model=bert 2>&1"):format(
    folder, root))
  t.check(status == 1 and output:find("Bert, which predicts masked tokens; "
          .. "recipes/train_masked.lua trains it", 1, true), output)
end)

t.finish()
