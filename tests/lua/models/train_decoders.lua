-- recipes/train.lua trains, resumes and fine-tunes every decoder of models/, and the recipes for
-- evaluation and generation take the result.
local files = require "nn.io.files"
local nn = require "nn"
local root = require("nn.host").root
local t = require "nn.test"
local folder = t.folder()
files.write(folder .. "/text.txt", ("To be, or not to be, that is the question.\n"):rep(60))

local function recipe(name, words)
  return t.shell(("cd '%s'; timeout -k 5 120 $NNLUA %s/recipes/%s.lua %s 2>&1"):format(
    folder, root, name, words))
end

local tiny = "data.text=text.txt model.layers=2 model.heads=2 model.embd=16 model.context=16 "
  .. "data.batch=4 eval_every=0 sample.tokens=5 "

local function train(words)
  local status, output = recipe("train", words)
  t.check(status == 0, output)
  return output
end

for _, file in ipairs(files.list(root .. "/models")) do
  local name = file:match "^(.*)%.lua$"
  if require("models." .. name).kind ~= "decoder" then goto continue end
  t.case(name .. " is planned, trained, resumed, evaluated and used for generation", function()
    local run = ("model=%s out=%s "):format(name, name)
    t.check(train(run .. tiny .. "--plan"):find "^parameters")
    t.check(train(run .. tiny .. "steps=30 optim.lr=0.01 schedule.warmup=1"):find "done after")
    local output = train(("out=%s resume=auto steps=40"):format(name))     -- the model is known
    t.check(output:find("resumed after step 30", 1, true), output)
    t.check(tonumber(output:match "val_loss (%d%.%d+)") < 2.6, output)
    t.same(nn.open_checkpoint(folder .. "/" .. name .. "/checkpoint-000040").state.model, name)
    local status, scores = recipe("gpt2_eval", ("model=%s text=text.txt tokens=200"):format(name))
    t.check(status == 0 and scores:find "perplexity", scores)
    local written, text = recipe("gpt2_generate", ("model=%s prompt=to tokens=9"):format(name))
    t.check(written == 0 and text:find "^to", text)
  end)
  ::continue::
end

-- Adds tokens to the tokenizer of the exported folder, which the model has no rows for.
local function add_tokens(path, ...)
  local content = files.parse_json(files.read(path .. "/tokenizer.json"))
  for i, text in ipairs {...} do
    content.added_tokens[#content.added_tokens + 1] = {
      id = 255 + i, content = text, single_word = false, lstrip = false, rstrip = false,
      normalized = false, special = false}
  end
  files.write(path .. "/tokenizer.json", files.json(content))
  files.write(path .. "/tokenizer_config.json", files.json {
    chat_template = "{{ messages[-1].content }}", eos_token = "<pad>", bos_token = "<pad>"})
end

t.case("a tokenizer may have more tokens than the model, unless one of them occurs", function()
  train("model=llama out=few steps=2 data.vocabulary=byte " .. tiny)
  t.same((recipe("export", "model=few out=more")), 0)
  add_tokens(folder .. "/more", "<pad>")
  files.write(folder .. "/with.txt", ("to be or not to be\n"):rep(60) .. "a <pad> b\n")
  files.write(folder .. "/messages", "to be\n")
  local lacks = "token 256 ('<pad>')%s has no row in the model, which has 256; the tokenizer "
    .. "(byte-level BPE of 257 tokens)"
  local tune = "preset=finetune init=more data.context=16 data.batch=2 steps=2 eval_every=0 "
    .. "sample.tokens=4 final_batches=1 "
  t.check(train(tune .. "data.text=text.txt --plan"):find "^parameters")
  t.check(train(tune .. "data.text=text.txt out=tuned"):find "done after")
  t.check(train "resume=tuned steps=3":find "done after")
  local status, output = recipe("train", tune .. "data.text=with.txt out=none")
  t.same(status, 1)
  t.check(output:find("data.text 'with.txt': " .. lacks:format " at position 1142 (from 0)", 1,
                      true), output)
  for name, words in pairs {gpt2_eval = "text=%s.txt context=8 stride=4",
                            gpt2_generate = "prompts=%s.txt tokens=3"} do
    status, output = recipe(name, "model=tuned " .. words:format "text")
    t.check(status == 0, output)
    status, output = recipe(name, "model=tuned " .. words:format "with")
    t.check(status == 1 and output:find(lacks:format "", 1, true), output)
  end
  for text, expected in pairs {["to be"] = 0, ["to <pad>"] = 1} do
    files.write(folder .. "/messages", text .. "\n")
    status, output = recipe("chat", "model=more tokens=3 <messages")
    t.same(status, expected, output)
    t.same(output:find("the conversation: " .. lacks:format "", 1, true) ~= nil, expected == 1)
  end
  t.same((recipe("export", "model=tuned out=again")), 0)
  t.same(nn.tokenizer(folder .. "/again").size, 257)
end)

t.case("hidden tokens are never replaced by one that the model lacks", function()
  files.make_folder(folder .. "/hide")
  local tokenizer = nn.train_tokenizer("aaaa", {size = 258, special = {"[MASK]"}})
  tokenizer:save(folder .. "/hide")
  add_tokens(folder .. "/hide", "ignored")
  local words = nn.tokenizer(folder .. "/hide")
  local below = words.size - 1
  local data = nn.data({text = folder .. "/text.txt", batch = 50}, {
    context = 40, vocab = below, vocabulary = words})
  t.same(nn.mask_tokens(data, {share = 1}), below)
  for _ = 1, 20 do t.check(data.train:batch():max():item() < below, "a row of the model") end
end)

t.case("a run is exported as a folder of transformers, and again in bf16", function()
  local function export(words) return recipe("export", words) end
  t.check(train("model=llama out=run steps=2 data.vocabulary=byte " .. tiny):find "done after")
  local status, output = export "model=run out=exported"
  t.check(status == 0 and output:find "^exported: Llama, %S+ parameters in f32\n$", output)
  local model, words = nn.load_hf(folder .. "/exported")
  t.same(words:ids "to be", nn.vocabulary("byte"):ids "to be")
  for i, p in ipairs(nn.load_model(folder .. "/run"):parameters()) do
    t.same(model:parameters()[i].tensor:table(), p.tensor:table(), p.path)
  end
  status, output = export "model=exported out=half dtype=bf16 shard_bytes=5000"
  t.check(status == 0 and output:find("in bf16", 1, true), output)
  t.same(nn.load_hf(folder .. "/half", {dtype = "bf16"}):count(), model:count())
  t.check(files.exists(folder .. "/half/model.safetensors.index.json"), "several shards")
  for words_given, message in pairs {
    ["model=run"] = "give out=FOLDER", ["out=a"] = "give model=FOLDER",
    ["model=run out=exported"] = "out=exported exists and is not empty; give a new folder",
    ["model=nothing out=a"] = "there is no folder 'nothing'",
  } do
    status, output = export(words_given)
    t.check(status == 1 and output:find(message, 1, true), output)
  end
  t.check(not files.list(folder .. "/a"), "nothing is left of an export that failed")
end)

t.case("init takes all settings of the model, and its class", function()
  local model = require "models.llama" {layers = 1, heads = 2, kv_heads = 1, embd = 16, vocab = 256,
                                        context = 24, tied = true, theta = 500, qk_norm = true}
  nn.save_hf(folder .. "/start", model, nn.vocabulary "byte")
  train("preset=finetune init=start data.text=text.txt data.context=16 data.batch=2 steps=2 "
        .. "sample.tokens=3 optim.lr=0 schedule.min_lr=0 out=same")
  local again = nn.load_model(folder .. "/same")
  for _, name in ipairs {"kv_heads", "tied", "theta", "qk_norm", "inner"} do
    t.same(again.config[name], model.config[name], name)
  end
  t.same(again.tok.weight:table(), model.tok.weight:table())
  local status, output = recipe("train", "init=start model.theta=700 data.text=text.txt")
  t.check(status == 1 and output:find("model.theta=700 of the command line conflicts with "
          .. "init=start, a model with model.theta=500", 1, true), output)
  status, output = recipe("train", "model=gpt2 init=start data.text=text.txt")
  t.check(status == 1 and output:find("this recipe trains GPT2; init=start is Llama, which "
          .. "continues texts; recipes/train.lua trains it, without model=", 1, true), output)
  status, output = recipe("train", "model=mixer")
  t.check(status == 1 and output:find("this recipe trains a model that continues texts; "
          .. "model=mixer is Mixer, which a recipe of its own trains", 1, true), output)
  for name, advice in pairs {mistral = "model=llama model.window=4096",
                             qwen3 = "model=llama model.qk_norm=true"} do
    status, output = recipe("train", "model=" .. name)
    t.check(status == 1 and output:find(advice, 1, true), output)
  end
  status, output = recipe("train", "model=lama")
  t.check(status == 1 and output:find("did you mean 'llama'?", 1, true), output)
end)

t.case("a run in its default folder resumes with its own class, and refuses another", function()
  train("model=gpt_neo preset=char " .. tiny .. "steps=2")
  local output = train "preset=char resume=auto steps=3"
  t.check(output:find("resumed after step 2", 1, true), output)
  local status, refused = recipe("train", "model=llama preset=char resume=auto steps=4")
  t.check(status == 1 and refused:find("is a GPTNeo; leave model= out", 1, true), refused)
end)

t.finish()
