-- Text generation: the cache, sampling, stopping, and errors.
local nn = require "nn"
local sample = require "nn.models.sample"
local t = require "nn.test"
local GPT2 = require "models.gpt2"

local function new_model()
  nn.seed(1)
  local model = GPT2 {layers = 2, heads = 2, embd = 32, vocab = 100, context = 24}
  nn.no_grad(function()
    for _, p in ipairs(model:parameters()) do p.tensor:add_(nn.randn(p.tensor.shape) * 0.2) end
  end)
  return model
end

-- The same model without caches: every token is computed from the whole sequence.
local function without_cache(model)
  return setmetatable({config = model.config}, {__call = function(_, ids) return model(ids) end})
end

local prompts = {{1, 2, 3}, {7}, {9, 8, 7, 6, 5, 4}}

t.case("a kept cache is made anew after its scope or another model, and serves one call at a time",
       function()
  local model, cache = new_model(), {}
  local how = {tokens = 6, temperature = 0, cache = cache}
  local expected = nn.generate(model, {1, 2, 3}, {tokens = 6, temperature = 0})
  local function read_of(net, ids)
    local out, info = nn.generate(net, ids, how)
    t.same({unpack(out, 1, #expected)}, {unpack(expected, 1, #out)})
    return info.read
  end
  t.same(nn.scope(read_of, model, {1, 2, 3}), 3)
  t.same({read_of(model, {1, 2, 3}), read_of(model, expected)}, {3, 1})
  t.same({read_of(new_model(), {1, 2, 3}), read_of(model, {1, 2, 3})}, {3, 3})
  how.on_token = function() nn.generate(model, {5}, {tokens = 1, cache = cache}) end
  t.fails(function() nn.generate(model, {1, 2, 3}, how) end,
          "another call uses the cache and has not ended")
  how.on_token = nil
  t.same(read_of(model, {1, 2, 3}), 3)
  t.same(select(2, nn.generate(model, {4}, {tokens = 0, cache = {}})).read, 0)
end)

t.case("with a cache, and for prompts of different lengths at once, the tokens are the same, "
       .. "beyond the context too", function()
  local model = new_model()
  for _, options in ipairs {
    {temperature = 0}, {temperature = 0.9, seed = 5}, {top_k = 7, seed = 5},
    {top_p = 0.6, seed = 5}, {temperature = 0, repetition_penalty = 1.3},
  } do
    options.tokens, options.logprobs = 30, true
    local all, info = nn.generate(model, prompts, options)
    for i, prompt in ipairs(prompts) do
      local alone = {}
      for name, value in pairs(options) do alone[name] = value end
      alone.seed = (options.seed or 0) + i - 1
      local one, about = nn.generate(without_cache(model), prompt, alone)
      t.same(one, all[i])
      t.near(about.logprobs, info.logprobs[i], {abs = 1e-4})
      t.same(info.reason[i], "length")
    end
  end
end)

t.case("caches have room for the prompt and the new tokens, up to the context, to the same bits",
       function()
  nn.seed(1)
  local model = require "models.llama" {layers = 1, heads = 4, kv_heads = 2, embd = 32, vocab = 50,
                                        context = 100000}
  local class, rooms = getmetatable(model), {}
  local function generate(prompt, tokens, whole)
    model.caches = function(self, batch, room)
      rooms[#rooms + 1] = room
      return class.caches(self, batch, whole or room)
    end
    return {nn.generate(model, prompt, {tokens = tokens, seed = 3, logprobs = true})}
  end
  local first = generate({1, 2, 3}, 20)
  t.same(generate({1, 2, 3}, 20, 200), first)
  generate({{1, 2, 3}, {4, 5, 6, 7, 8}}, 60)
  model.config.context = 30
  generate({1, 2, 3}, 20)
  t.same(rooms, {64, 64, 128, 30})
  t.same(class.caches(model, 2, 7)[1].shape, {2, 4, 7, 8})
  t.fails(function() class.caches(model, 1, 31) end,
          "llama: caches of 31 tokens are longer than the model's context of 30")
  t.fails(function() class.caches(model, 1, 0) end, "llama: tokens is 0; a whole number of at")
end)

t.case("log-probabilities are those of the model", function()
  local model = new_model()
  local ids, info = nn.generate(model, {1, 2}, {tokens = 5, seed = 3, logprobs = true})
  local logits = nn.no_grad(function() return model(nn.tensor({ids}, {dtype = "i32"})) end)
  local logp = logits:log_softmax():table()[1]
  for i = 1, 5 do t.near(info.logprobs[i], logp[i + 1][ids[i + 2] + 1], {abs = 1e-4}) end
end)

t.case("top_k and top_p sample only the likeliest tokens, in the right proportions", function()
  local probabilities = {[0] = 0.1, 0.5, 0.04, 0.3, 0.06}
  local logits = {}
  for id = 0, 4 do logits[id] = math.log(probabilities[id]) end
  local function shares(options)
    local counts = {0, 0, 0, 0, 0}
    for i = 0, 9999 do
      local id = sample.draw(logits, 5, options, (i + 0.5) / 10000)
      counts[id + 1] = counts[id + 1] + 1e-4
    end
    return counts
  end
  t.near(shares {}, {0.1, 0.5, 0.04, 0.3, 0.06}, {abs = 1e-3})
  t.near(shares {top_k = 2}, {0, 0.625, 0, 0.375, 0}, {abs = 1e-3})
  t.near(shares {top_p = 0.85}, {1 / 9, 5 / 9, 0, 3 / 9, 0}, {abs = 1e-3})
  t.near(shares {top_p = 0.5}, {0, 1, 0, 0, 0}, {abs = 1e-3})
  t.near(shares {top_k = 3, top_p = 0.5}, {0, 1, 0, 0, 0}, {abs = 1e-3})
  t.near(shares {temperature = 0}, {0, 1, 0, 0, 0}, {abs = 1e-9})
  local root = math.sqrt(0.1) + math.sqrt(0.5) + math.sqrt(0.04) + math.sqrt(0.3) + math.sqrt(0.06)
  t.near(shares({temperature = 2})[2], math.sqrt(0.5) / root, {abs = 1e-3})
end)

t.case("the k largest of many are found", function()
  local logits, order = {}, {}
  for id = 0, 999 do
    logits[id] = (id * 7919) % 1009
    order[id + 1] = id
  end
  table.sort(order, function(a, b) return logits[a] > logits[b] end)
  for _, k in ipairs {1, 2, 10, 999} do
    local least = math.huge
    for i = 0, 499 do
      local id = sample.draw(logits, 1000, {top_k = k, temperature = 1e4}, (i + 0.5) / 500)
      least = math.min(least, logits[id])
    end
    t.check(least >= logits[order[k]], "only of the k largest")
  end
end)

t.case("a stop id or a stop text ends its sequence, and the others continue", function()
  local model, words = new_model(), nn.vocabulary("byte")
  local plain = nn.generate(model, {1}, {tokens = 20, temperature = 0})
  local stop = plain[8]
  local first
  for i = 2, #plain do first = first or plain[i] == stop and i or nil end
  local ids, info = nn.generate(model, {1}, {tokens = 20, temperature = 0, stop_ids = {stop}})
  t.same({#ids, info.reason}, {first, "stop"})
  local text = words:decode {plain[5], plain[6]}
  ids, info = nn.generate(model, {1}, {tokens = 20, temperature = 0, stop = {text},
                                       tokenizer = words})
  t.same(info.reason, "stop")
  t.check(words:decode(ids):sub(-2) == text, "it ends on the text")
  local all, about = nn.generate(model, {{1}, {2}}, {tokens = 20, temperature = 0,
                                                     stop_ids = {stop}})
  t.same({#all[1], about.reason[1]}, {first, "stop"})
  t.check(#all[2] > #all[1] or about.reason[2] == "stop", "the second continues")
end)

t.case("one stop text or id is the same as a list of one", function()
  local model, words = new_model(), nn.vocabulary "byte"
  local plain = nn.generate(model, {1}, {tokens = 20, temperature = 0})
  local function ends(options)
    options.tokens, options.temperature, options.tokenizer = 20, 0, words
    return (nn.generate(model, {1}, options))
  end
  local text = words:decode {plain[5]}
  t.same(ends {stop = text}, ends {stop = {text}})
  t.same(ends {stop_ids = plain[5]}, ends {stop_ids = {plain[5]}})
  t.check(#ends {stop = text} < #plain, "it ends there")
end)

t.case("on_token gets every token as it is generated", function()
  local seen = {}
  local ids = nn.generate(new_model(), {1, 2}, {tokens = 6, on_token = function(id, row)
    t.same(row, 1)
    seen[#seen + 1] = id
  end})
  t.same(seen, {unpack(ids, 3)})
end)

t.case("generation changes neither the random state nor the training mode", function()
  local model = new_model()
  local before = nn.random_state()
  nn.generate(model, {1}, {tokens = 3})
  t.same(nn.random_state(), before)
  t.same(nn.training(), true)
end)

t.case("invalid options are refused", function()
  local model = new_model()
  local function refused(options, message)
    t.fails(function() nn.generate(model, {1}, options) end, message)
  end
  refused({token = 5}, "has no option 'token'; did you mean 'tokens'?")
  refused({top_p = 2}, "top_p is 2; a number from 0 to 1 is needed")
  refused({temperature = -1}, "temperature is -1")
  refused({stop = {"x"}}, "`stop` needs `tokenizer` too")
  refused({stop = {""}, tokenizer = nn.vocabulary "byte"}, "a stop text is ''")
  refused({tokenizer = "gpt2"}, "the tokenizer is 'gpt2'; a result of nn.tokenizer")
  refused({temperature = 0 / 0}, "temperature is %-?nan")
  refused({top_k = 2.5}, "top_k is 2.5; a whole number of at least 0 is needed")
  refused({seed = "x"}, "seed is 'x'; a whole number")
  refused({on_token = 3}, "on_token: the argument is 3; a function is needed")
  t.fails(function() nn.generate(nil, {1}) end, "generate: the model is nil")
  t.fails(function() nn.generate(model, {}, {}) end, "generate: give at least one token")
end)

t.case("tokens behind a cache attend as the end of a whole sequence does", function()
  nn.seed(4)
  local tolerances = {f32 = {abs = 1e-5}, f64 = {abs = 1e-13}, bf16 = {abs = 0.02}}
  for dtype, tolerance in pairs(tolerances) do
    local bias = nn.randn(6, 4):to(dtype)
    for _, more in ipairs {{}, {window = 9}, {bias = bias, max_distance = 20}} do
      local qkv = nn.randn(2, 90, 64):to(dtype)          -- 4 heads of 8, 2 heads of keys and values
      local o = {heads = 4, kv_heads = 2}
      for name, value in pairs(more) do o[name] = value end
      local whole = nn.attention(qkv, o)
      o.kv_heads = nil
      for _, len in ipairs {1, 4, 5, 16, 50} do
        local cache = nn.zeros({2, 4, 100, 8}, {dtype = dtype})
        local function start(at) return nn.tensor({at, at}, {dtype = "i32"}) end
        nn.cache_write_(cache, qkv:slice(2, 1, 90 - len), start(0), {heads = 4})
        local _, out = nn.attention_cached_(cache, qkv:slice(2, 91 - len, 90), start(90 - len), o)
        t.near(out:to "f64", whole:slice(2, 91 - len, 90):to "f64", tolerance)
      end
    end
  end
end)

t.case("kept caches need one sequence and a decoder with caches, and survive a full context",
       function()
  local model = new_model()
  t.fails(function() nn.generate(model, {{1}, {2}}, {cache = {}}) end,
          "the number of sequences is 2; 1 is needed with the option `cache`")
  t.fails(function() nn.generate(model, {1}, {cache = true}) end,
          "the cache is true; a table is needed, {} at first")
  t.fails(function() nn.generate(without_cache(model), {1}, {cache = {}}) end,
          "the option `cache` needs one of a class of nn.decoder")
  local cache = {}
  local function check(prompt, read, tokens)
    local how = {tokens = tokens or 10, temperature = 0, cache = cache}
    local ids, info = nn.generate(model, prompt, how)
    t.same(info.read, read)
    how.cache = nil
    t.same(nn.generate(model, prompt, how), ids)
    return ids
  end
  local ids = check({1, 2, 3}, 3)
  ids = check(ids, 1)                                    -- 23 of the 24 tokens of the context
  local beyond = check(ids, 1)
  check({unpack(beyond, 1, 24)}, 1, 3)
  check(beyond, #beyond)                                 -- longer than the context
  check({unpack(ids, 1, 20)}, 1, 2)
  model = new_model()                                    -- caches of another model
  check(ids, #ids)
end)

t.case("a full cache, or one of another model, is refused", function()
  local cache, start = nn.zeros {1, 4, 5, 3}, nn.tensor({4}, {dtype = "i32"})
  t.fails(function()
    nn.cache_write_(cache, nn.ones(1, 2, 18), start, {heads = 2})
    nn.sync()
  end, "2 tokens from position 4 on do not fit into a cache of 5")
  t.fails(function() nn.cache_write_(cache, nn.ones(1, 1, 12), start, {heads = 2}) end,
          "qkv is (1,1,12); for this cache it must be (1, tokens, 18)")
end)

t.finish()
