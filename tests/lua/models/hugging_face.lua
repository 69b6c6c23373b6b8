-- Loads and saves Hugging Face checkpoints (tests/golden/make_hf.py).
local ffi = require "ffi"
local files = require "nn.io.files"
local generation_config = require "nn.models.generation_config"
local host = require "nn.host"
local nn = require "nn"
local safetensors = require "nn.io.safetensors"
local t = require "nn.test"

local given = host.root .. "/tests/golden/hf_gpt2"
local expected = safetensors.open(given .. "/expected.safetensors")
local folder = t.folder()

-- A copy of the given folder with config.json or one tensor changed.
local function changed(name, from, to)
  local copy = folder .. "/" .. name
  files.make_folder(copy)
  for _, file in ipairs {"config.json", "model.safetensors"} do
    local text = files.read(given .. "/" .. file)
    local first, last = text:find(from, 1, true)
    if first then text = text:sub(1, first - 1) .. to .. text:sub(last + 1) end
    files.write(copy .. "/" .. file, text)
  end
  return copy
end

t.case("a model that transformers saved gives its logits", function()
  local model = nn.load_hf(given)
  local logits = nn.no_grad(function() return model(expected:tensor "ids") end)
  t.near(logits, expected:tensor "logits", {abs = 1e-4})
end)

t.case("weights in F16 are read as f32, each to the bit", function()
  local bits, values = {0x3c00, 0xc000, 0x0001, 0x7bff, 0x8000, 0x3555},
    {1, -2, 2 ^ -24, 65504, 0, 0.333251953125}
  local header = '{"v":{"dtype":"F16","shape":[2,3],"data_offsets":[0,12]}}'
  local size = ffi.string(ffi.new("uint64_t[1]", #header), 8)
  files.write(folder .. "/half.safetensors",
              size .. header .. ffi.string(ffi.new("uint16_t[6]", bits), 12))
  local v = nn.load_safetensors(folder .. "/half.safetensors").v
  t.same({v.dtype, v:dim(1), v:reshape(-1):table()}, {"f32", 2, values})
end)

t.case("greedy decoding gives the tokens that transformers generates", function()
  local model = nn.load_hf(given)
  local greedy = expected:tensor("greedy"):table()
  local prompt = {unpack(greedy, 1, 5)}
  t.same(nn.generate(model, prompt, {tokens = 40, temperature = 0}), greedy)
end)

t.case("saved again, every tensor is the same to the bit, under the same name", function()
  local model = nn.load_hf(given)
  nn.save_hf(folder .. "/saved", model)
  local before = safetensors.open(given .. "/model.safetensors")
  local after = safetensors.open(folder .. "/saved/model.safetensors")
  t.same(after.metadata, before.metadata)
  t.same(#after.entries, #before.entries)
  for i, a in ipairs(after.entries) do
    local b = before.entries[i]
    t.same({a.name, a.dtype, a.shape}, {b.name, b.dtype, b.shape})
    t.same(files.crc32(after:data(a.name), a.bytes), files.crc32(before:data(b.name), b.bytes))
  end
  local function config(path) return files.parse_json(files.read(path .. "/config.json")) end
  local ours, theirs = config(folder .. "/saved"), config(given)
  for _, name in ipairs {"model_type", "n_layer", "n_head", "n_embd", "n_positions", "vocab_size",
                         "activation_function", "layer_norm_epsilon", "tie_word_embeddings"} do
    t.same(ours[name], theirs[name], name)
  end
end)

t.case("a recipe starts from the weights, sizes and vocabulary of a Hugging Face checkpoint",
       function()
  local model = nn.load_hf(given)
  local words = nn.train_tokenizer(("some words to learn from, "):rep(200), {size = 270})
  nn.save_hf(folder .. "/start", model, words)
  files.write(folder .. "/words.txt", ("some words to learn from, "):rep(200))
  local function train(settings)
    return t.shell(("cd %s; $NNLUA %s/recipes/gpt2_train.lua preset=finetune init=start "
      .. "data.text=words.txt data.context=16 data.batch=2 steps=2 sample.tokens=5 %s"):format(
      folder, host.root, settings))
  end
  local status, output = train "optim.lr=0 schedule.min_lr=0 out=same"
  t.same({status, output}, {0, output})
  local same, known = nn.load_model(folder .. "/same")
  for i, p in ipairs(same:parameters()) do
    t.same(p.tensor:table(), model:parameters()[i].tensor:table(), p.path)
  end
  t.same(known:ids "words to learn", words:ids "words to learn")
  t.check(select(2, train "out=tuned"):find "done after", "a run that learns")
  status, output = train "out=tuned resume=auto steps=3"
  t.check(status == 0 and output:find("resumed after step 2", 1, true), output)
  status, output = train "out=half model.dtype=bf16"
  t.check(status == 0 and output:find "val_loss %d", output)
  t.check(select(2, train "data.context=99 out=all"):find "done after", "all that it sees")
  t.fails(function() nn.data({text = folder .. "/words.txt", context = 65}, {context = 64}) end,
          "data.context=65 is more than the model's context of 64")
  local layers = nn.load_hf(given).config.layers
  local _, refused = train("out=other model.heads=1 model.layers=" .. layers)
  t.check(refused:find("model.heads=1 of the command line conflicts with init=start, a model "
                       .. "with model.heads=", 1, true), refused)
  t.check(select(2, train "init="):find("preset finetune needs init=FOLDER", 1, true))
  files.remove(folder .. "/start/tokenizer.json")
  files.remove(folder .. "/start/vocab.json")
  t.check(select(2, train "out=none"):find("init 'start' has no tokenizer", 1, true))
end)

t.case("a model in shards equals the model in one file", function()
  local model = nn.load_hf(given)
  nn.save_hf(folder .. "/shards", model, nil, {shard_bytes = 20000})
  t.check(#files.list(folder .. "/shards") > 4, "several shards, an index, config.json")
  local again = nn.load_hf(folder .. "/shards")
  local function sums(m)
    local list = {}
    for i, p in ipairs(m:parameters()) do
      list[i] = files.crc32(p.tensor:host(), p.tensor:bytes())
    end
    return list
  end
  t.same(sums(again), sums(model))
end)

t.case("names without the prefix, and bf16 weights, are read", function()
  local model = nn.load_hf(given)
  local file, tensors = safetensors.open(given .. "/model.safetensors"), {}
  for _, entry in ipairs(file.entries) do
    tensors[entry.name:match "^transformer%.(.*)$"] = file:tensor(entry.name):to "bf16"
  end
  files.make_folder(folder .. "/bare")
  nn.save_safetensors(folder .. "/bare/model.safetensors", tensors)
  files.write(folder .. "/bare/config.json", files.read(given .. "/config.json"))
  local again = nn.load_hf(folder .. "/bare")
  for i, p in ipairs(again:parameters()) do
    t.near(p.tensor, model:parameters()[i].tensor, {rel = 2 ^ -8, abs = 1e-30})
  end
end)

t.case("the tokenizer is loaded and saved with the model", function()
  local golden = files.parse_json(files.read(host.root .. "/tests/golden/bpe.json"))
  local model, none = nn.load_hf(given)
  t.same(none, nil)
  local tokenizer = nn.train_tokenizer(golden.text, {size = 370})
  nn.save_hf(folder .. "/both", model, tokenizer)
  local _, again = nn.load_hf(folder .. "/both")
  t.same(again.symbols, tokenizer.symbols)
end)

t.case("a model with a tokenizer.model is loaded and saved with it; unknown tokenizers are refused",
       function()
  local golden, path = host.root .. "/tests/golden/sentencepiece/", folder .. "/sentencepiece"
  nn.save_hf(path, nn.load_hf(given))
  files.write(path .. "/tokenizer.model", files.read(golden .. "bpe_bytes.model"))
  t.fails(function() nn.load_hf(path) end, "config.json has the model_type gpt2, whose tokenizer")
  files.write(path .. "/tokenizer_config.json", '{"tokenizer_class": "LlamaTokenizer"}')
  local model, tokenizer = nn.load_hf(path)
  nn.save_hf(folder .. "/sentencepiece again", model, tokenizer)
  local _, again = nn.load_hf(folder .. "/sentencepiece again")
  t.same(again:ids "to be", tokenizer:ids "to be")
  files.remove(path .. "/tokenizer.model")
  files.write(path .. "/tekken.json", "{}")
  t.fails(function() nn.load_hf(path) end, "tekken.json: nnlua cannot read this tokenizer. If tra")
  t.same(nn.load_hf(path, {tokenizer = false}):count(), model:count())
  t.same(select(2, nn.load_model(path, folder .. "/sentencepiece again")):ids "to be",
         tokenizer:ids "to be")
end)

t.case("loading takes the memory of the model and of one transposed matrix", function()
  local path = folder .. "/medium"
  nn.save_hf(path, require "models.gpt2" {layers = 6, heads = 8, embd = 512, vocab = 8000,
                                          context = 512})
  local status, output = t.shell(([[cd %s && "$NNLUA" -e '
    nn.zeros(4):host()
    local function anonymous()
      for line in io.lines "/proc/self/status" do
        local kilobytes = line:match "^RssAnon:%%s+(%%d+)"
        if kilobytes then return 1024 * tonumber(kilobytes) end
      end
    end
    local before, model, bytes = anonymous(), nn.load_hf "%s", 0
    nn.sync()
    for _, p in ipairs(model:parameters()) do bytes = bytes + p.tensor:bytes() end
    print(bytes, nn.memory().peak, anonymous() - before)']]):format(host.root, path))
  t.same(status, 0)
  local bytes, peak, resident = output:match "(%d+)%s+(%d+)%s+(%d+)"
  bytes, peak, resident = tonumber(bytes), tonumber(peak), tonumber(resident)
  local largest = 4 * 512 * 4 * 512
  t.check(bytes > 90e6, "a model that counts")
  t.check(peak < 1.04 * bytes + largest, ("tiles took %d of %d bytes"):format(peak, bytes))
  t.check(resident < 1.1 * bytes + largest + 16e6,
          ("%d bytes became resident for %d"):format(resident, bytes))
end)

t.case("saving over another model replaces all its files", function()
  local model, other = nn.load_hf(given), nn.load_hf(given)
  nn.no_grad(function() other.tok.weight:fill_(0.25) end)
  local path = folder .. "/again"
  local function loads(expected_model)
    t.same(nn.load_hf(path).tok.weight:table(), expected_model.tok.weight:table())
  end
  nn.save_hf(path, other)
  nn.save_hf(path, model, nil, {shard_bytes = 20000})
  t.check(not files.exists(path .. "/model.safetensors"), "transformers would take that one")
  loads(model)
  nn.save_hf(path, other, nil, {shard_bytes = 40000})
  loads(other)
  nn.save_hf(path, model)
  t.same(files.list(path), {"config.json", "model.safetensors"})
  loads(model)
end)

t.case("a failed save leaves the earlier tokenizer, another one replaces all its files", function()
  local path, words = folder .. "/words", nn.train_tokenizer("some words", {size = 258})
  words:save(path)
  files.write(path .. "/special_tokens_map.json", "{}")
  files.make_folder(path .. "/tokenizer.json.tmp")
  t.fails(function() nn.train_tokenizer("other words", {size = 259}):save(path) end, "cannot write")
  t.same({nn.tokenizer(path).size, files.exists(path .. "/merges.txt")}, {257, true})
  t.check(os.remove(path .. "/tokenizer.json.tmp"))
  words:save(path)
  t.check(not files.exists(path .. "/special_tokens_map.json"), "that of another tokenizer")
end)

t.case("a failed save leaves the earlier model", function()
  local path, model = folder .. "/kept", nn.load_hf(given)
  nn.save_hf(path, model)
  files.make_folder(path .. "/model-00002-of-00005.safetensors.tmp")
  t.fails(function() nn.save_hf(path, model, nil, {shard_bytes = 20000}) end, "cannot write")
  t.same(files.list(path), {"config.json", "model-00002-of-00005.safetensors.tmp",
                            "model.safetensors"})
  t.same(nn.load_hf(path):count(), model:count())
end)

t.case("a model is loaded and saved in bf16", function()
  local model = nn.load_hf(given, {dtype = "bf16"})
  t.same(model.blocks[1].attn.qkv.weight.dtype, "bf16")
  nn.save_hf(folder .. "/half", model)
  t.same(files.parse_json(files.read(folder .. "/half/config.json")).dtype, "bfloat16")
  local again, whole = nn.load_hf(folder .. "/half"), nn.load_hf(given)
  for i, p in ipairs(again:parameters()) do
    t.near(p.tensor, whole:parameters()[i].tensor, {rel = 2 ^ -8, abs = 1e-30})
  end
end)

t.case("byte and char vocabularies are loaded and saved with the model", function()
  local model, path = nn.load_hf(given), folder .. "/letters"
  nn.save_hf(path, model, nn.vocabulary("char", "hello"))
  local _, words = nn.load_hf(path)
  t.same(words:ids "hello", {1, 0, 2, 2, 3})
  local all = {}
  for byte = 0, 255 do all[byte + 1] = string.char(byte) end
  nn.save_hf(path, model, nn.vocabulary "byte")
  _, words = nn.load_hf(path)
  t.same(words:ids(table.concat(all)), nn.vocabulary("byte"):ids(table.concat(all)))
end)

t.case("an index is read tensor by tensor, and refused where it names missing ones", function()
  local path, model = folder .. "/parts", nn.load_hf(given)
  nn.save_hf(path, model, nil, {shard_bytes = 20000})
  local index = path .. "/model.safetensors.index.json"
  local tensors = nn.load_safetensors(index)
  t.same(tensors["transformer.wte.weight"]:table(), model.tok.weight:table())
  local text = files.read(index)
  local function refused(from, to, message)
    files.write(index, (text:gsub(from, to)))
    t.fails(function() nn.load_safetensors(index) end, message)
  end
  refused('"model%-00002%-of', '"model-00007-of', "00007-of-00005.safetensors', which is missing")
  for _, name in ipairs {"..", ".", "", "/etc/passwd", "../model.safetensors", "a\\u0000b"} do
    refused('(wte.weight": ")[^"]*', "%1" .. name, "which is not a file name")
  end
  refused('(wte.weight": ")[^"]*', "%1model-00001-of-00005.safetensors",
          "'transformer.wte.weight' is not in model-00001-of-00005.safetensors")
  refused("weight_map", "weights", "has no weight_map")
end)

-- A copy of the given folder with generation_config.json, and eos_token_id of config.json.
local function with_generation(name, generation, ends)
  local copy = changed(name, '"eos_token_id": 0', '"eos_token_id": ' .. (ends or "0"))
  files.write(copy .. "/generation_config.json", generation)
  return copy
end

t.case("generation_config.json gives options of nn.generate, and its ends are the default",
       function()
  local model = nn.load_hf(given)
  t.same(model.generation, {stop_ids = {0}})
  local greedy = expected:tensor("greedy"):table()
  local prompt, last = {unpack(greedy, 1, 5)}, greedy[9]
  local path = with_generation("ends", files.json {
    eos_token_id = {last, 2}, do_sample = true, temperature = 0.25, top_k = 7, top_p = 0.5,
    repetition_penalty = 1.5, max_length = 20, suppress_tokens = {1}}, "[3, -1]")
  model = nn.load_model(path)
  t.same(model.generation, {stop_ids = {last, 2, 3}, temperature = 0.25, top_k = 7, top_p = 0.5,
                            repetition_penalty = 1.5})
  local ends = 6                                                     -- the first `last`
  while greedy[ends] ~= last do ends = ends + 1 end
  local ids, info = nn.generate(model, prompt, {tokens = 40, temperature = 0})
  t.same({ids, info.reason}, {{unpack(greedy, 1, ends)}, "stop"})
  t.same(nn.generate(model, prompt, {tokens = 40, temperature = 0, stop_ids = {}}), greedy)
  nn.generate(model, prompt, model.generation)                       -- they are valid options
  local greedily = with_generation("greedily", '{"do_sample": false, "temperature": 0.9}')
  t.same(nn.load_hf(greedily).generation, {stop_ids = {0}, temperature = 0})
  t.same(nn.load_hf(greedily).origin.unused, {})
  -- What transformers 5.24 does with an absent top_k, and with temperature but no do_sample.
  local sampled = with_generation("sampled", '{"do_sample": true, "temperature": 0.6}')
  t.same(nn.load_hf(sampled).generation, {stop_ids = {0}, temperature = 0.6, top_k = 50, top_p = 1,
                                          repetition_penalty = 1})
  t.same(nn.load_hf(with_generation("cold", '{"temperature": 0.6, "repetition_penalty": 1.2}'))
           .generation, {stop_ids = {0}, temperature = 0, repetition_penalty = 1.2})
end)

t.case("what generation_config.json states and nnlua does not do is listed", function()
  local model = nn.load_hf(with_generation("unused", files.json {
    num_beams = 4, typical_p = 1, no_repeat_ngram_size = 3, max_length = 64, max_new_tokens = 9,
    min_p = 0.1, epsilon_cutoff = 0, suppress_tokens = {4}, bad_words_ids = {}, use_cache = false,
    pad_token_id = 3, transformers_version = "5", early_stopping = true}))
  t.same(model.origin.unused, {"early_stopping=true", "max_length=64", "max_new_tokens=9",
                               "min_p=0.1", "no_repeat_ngram_size=3", "num_beams=4",
                               "suppress_tokens=..."})
  local old = nn.load_hf(changed("old", '"eos_token_id": 0',
                                 '"eos_token_id": 0, "do_sample": true, "num_beams": 3'))
  t.same({old.generation.top_k, old.origin.unused}, {50, {"num_beams=3"}})     -- of config.json
  t.same(generation_config.defaults(nn.config({temperature = 1}, {}), model),
         "generation_config.json: temperature=0 (not used: early_stopping=true max_length=64 "
         .. "max_new_tokens=9 min_p=0.1 no_repeat_ngram_size=3 num_beams=4 suppress_tokens=...)")
end)

t.case("null in generation_config.json counts as missing, and wrong values are refused by name",
       function()
  local path = with_generation("null", [[{"temperature": null, "top_k": null, "top_p": null,
    "eos_token_id": null, "do_sample": null, "repetition_penalty": null}]], "null")
  t.same(nn.load_hf(path).generation, {})
  t.same(nn.load_hf(with_generation("all", '{"do_sample": true, "top_k": -1}', "null")).generation
           .top_k, 0)
  for text, message in pairs {
    ['{"temperature": -1}'] = "/generation_config.json: temperature is -1; a number from 0 to",
    ['{"temperature": [1]}'] = "temperature is a table; a finite number is needed",
    ['{"top_k": 2.5}'] = "top_k is 2.5; a whole number from -1",
    ['{"top_p": 1.5}'] = "top_p is 1.5; a number from 0 to 1 is needed",
    ['{"repetition_penalty": 0}'] = "repetition_penalty is 0; a number from 0.001 to 1000",
    ['{"do_sample": "no"}'] = "do_sample is 'no'; true or false is needed",
    ['{"eos_token_id": [3, "x"]}'] = "eos_token_id[1] is 'x'; a whole number",
    ['[1]'] = "it is a list; an object is needed", ['{"top_k": '] = "is not JSON",
  } do
    path = with_generation("wrong", text)
    t.fails(function() nn.load_hf(path) end, message)
  end
  t.fails(function() nn.load_hf(with_generation("end", "{}", "true")) end,
          "config.json: eos_token_id is true")
end)

t.case("a saved folder has generation_config.json and the ends of the one it was loaded from",
       function()
  local function entries(name)
    return files.parse_json(files.read(folder .. "/resaved/" .. name .. ".json"))
  end
  local text = '{"eos_token_id": [4, 2], "temperature": 0.6, "x": {"y": [null, {}, 1.0]}}'
  local model = nn.load_hf(with_generation("first", text, "[4, 3]"))
  nn.save_hf(folder .. "/resaved", model)
  t.same(files.read(folder .. "/resaved/generation_config.json"), text)
  t.same(entries("config").eos_token_id, {4, 3})
  -- The end of another tokenizer is added.
  local words = nn.train_tokenizer("some words", {size = 260})
  local own = words.eos or words.special["<|endoftext|>"]
  nn.save_hf(folder .. "/resaved", model, words)
  t.same({entries("generation_config").eos_token_id, entries("config").eos_token_id},
         {{4, 2, own}, {4, 3, own}})
  -- Without generation_config.json: the tokens of the tokenizer; nothing without a tokenizer.
  local new = require "models.gpt2" (model.config)
  nn.save_hf(folder .. "/resaved", new, words)
  t.same(entries "generation_config", {bos_token_id = own, eos_token_id = own})
  nn.save_hf(folder .. "/resaved", new)
  t.check(not files.exists(folder .. "/resaved/generation_config.json"), "that of another model")
end)

t.case("missing files and other models are refused by name", function()
  local function refused(path, message) t.fails(function() nn.load_hf(path) end, message) end
  refused(folder .. "/nothing", "there is no folder")
  refused(nil, "load_hf: the folder is nil; a text is needed")
  refused(changed("a", '"gelu_new"', '"relu"'),
          "activation_function is 'relu'; nnlua's GPT2 needs 'gelu_new'")
  refused(changed("b", '"n_inner": null', '"n_inner": 100'), "n_inner is 100")
  refused(changed("c", '"n_layer": 4', '"n_layer": 5'), "has no tensor 'h.4.ln_2.weight'")
  refused(changed("d", '"n_embd": 16', '"n_embd": 32'), "'transformer.")
  refused(changed("e", '"n_head": 2', '"n_head": 0'), "n_head is 0; a whole number")
  refused(changed("f", "transformer.h.3.mlp.c_fc.bias", "transformer.h.3.mlp.c_fc.bia_"),
          "has no tensor 'h.3.mlp.c_fc.bias'")
  local empty = changed("g", "none", "")
  files.rename(empty .. "/model.safetensors", empty .. "/pytorch_model.bin")
  refused(empty, "neither model.safetensors nor model.safetensors.index.json; pytorch_model.bin")
  files.write(empty .. "/model.safetensors", "version https://git-lfs.github.com/spec/v1\n")
  refused(empty, "it is a Git LFS pointer; run `git lfs pull`")
  t.fails(function() nn.save_hf(folder .. "/linear", nn.Linear(2, 2)) end, "the model is a Linear")
  t.fails(function() nn.save_hf(folder .. "/x", nn.load_hf(given), nil, {shards = 2}) end,
          "save_hf: has no option 'shards'")
end)

t.finish()
