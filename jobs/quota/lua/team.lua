-- What every script shares. `time` is Redis' own clock, so that those of gateways do not matter.
--
-- holders   hash: 'team', and the id of each API key -> a holder
-- claims    hash: request id -> what is known of it until it is settled
-- flights   sorted set: request id -> when it has ended, should nobody ever say so
-- late      sorted set: request id -> when it had to end; nobody has settled it since. What is not
--           limited is in it from the beginning
--
-- A holder has `known`, how many requests are known of it; `flying`, how many of them are in flight;
-- `limits`, as the last claim had them, and `levels`, how full their buckets were `at` a time. The
-- team has `held` too, the sum of all holds; its account (version, balance, day_end, day_spent,
-- month_end, month_spent; in micro-units and ms); and `sweep_at`: nothing is due before.
--
-- Calls cost more than all else here: each holder is read once and written once, all together. What
-- is kept is packed by place, which takes half as long as by name.
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local HOLDERS, REQUESTS, FLIGHTS, LATE = unpack(KEYS)
local TEAM = 'team'

-- Buckets count in sixty-thousandths: a limit per minute refills just itself in a millisecond.
local UNIT = 60000
-- By the place of their limit among the limits of a holder; the one behind is on concurrency.
local REQUEST, INPUT, OUTPUT, CONCURRENCY = 1, 2, 3, 4
local KINDS = {'requests', 'input_tokens', 'output_tokens', 'concurrency'}
-- The recorder may be away for so long before a hold that it has not settled is dropped.
local LEASE_MS = 24 * 60 * 60 * 1000
local SWEEP = 100
-- In place of a limit or of a version that there is not.
local NONE = -1
local HOLDER = '<' .. string.rep('d', 18)
local REQUEST_KNOWN = '<ddddBBs'

local loaded = {}

-- Tables are made whole, at once: one that grows by a field at a time is allocated again and again.
local function read_holder(kept)
  local at, known, flying, held, requests, input, output, concurrency,
    requests_level, input_level, output_level,
    version, balance, day_end, day_spent, month_end, month_spent, sweep_at =
    struct.unpack(HOLDER, kept)
  return {
    at = at, known = known, flying = flying, held = held,
    limits = {requests, input, output, concurrency},
    levels = {requests_level, input_level, output_level},
    version = version, balance = balance, day_end = day_end, day_spent = day_spent,
    month_end = month_end, month_spent = month_spent, sweep_at = sweep_at,
  }
end

local function write_holder(each)
  local limits, levels = each.limits, each.levels
  return struct.pack(HOLDER, each.at, each.known, each.flying, each.held,
    limits[REQUEST], limits[INPUT], limits[OUTPUT], limits[CONCURRENCY],
    levels[REQUEST], levels[INPUT], levels[OUTPUT],
    each.version, each.balance, each.day_end, each.day_spent, each.month_end, each.month_spent,
    each.sweep_at)
end

local function new_holder()
  return {
    at = now, known = 0, flying = 0, held = 0,
    limits = {NONE, NONE, NONE, NONE}, levels = {0, 0, 0},
    version = NONE, balance = 0, day_end = 0, day_spent = 0, month_end = 0, month_spent = 0,
    sweep_at = math.huge,
  }
end

local function read_request(kept)
  local hold, input_tokens, output_tokens, ends, flying, limited, key_id =
    struct.unpack(REQUEST_KNOWN, kept)
  return {
    hold = hold, input_tokens = input_tokens, output_tokens = output_tokens, ends = ends,
    flying = flying == 1, limited = limited == 1, key_id = key_id,
  }
end

local function write_request(request)
  return struct.pack(REQUEST_KNOWN,
    request.hold, request.input_tokens, request.output_tokens, request.ends,
    request.flying and 1 or 0, request.limited and 1 or 0, request.key_id)
end

-- Lua itself would write a large number with an exponent.
local function whole(number)
  return string.format('%.0f', number)
end

-- Returns a holder with its buckets as full as they are by now; by new limits, if there are any.
local function holder(name, limits)
  local found = loaded[name]
  if found then return found end
  local kept = redis.call('HGET', HOLDERS, name)
  found = kept and read_holder(kept) or new_holder()
  local before, levels = found.limits, found.levels
  limits = limits or before
  local elapsed = math.max(0, now - found.at)
  for kind = REQUEST, OUTPUT do
    local limit = limits[kind]
    if limit ~= NONE then
      local full = limit * UNIT
      -- A limit that is new begins with a full bucket.
      local level = before[kind] ~= NONE and levels[kind] or full
      levels[kind] = math.min(full, level + elapsed * limit)
    end
  end
  found.limits, found.at = limits, now
  loaded[name] = found
  return found
end

local function save()
  local fields = {}
  for name, each in pairs(loaded) do
    fields[#fields + 1] = name
    fields[#fields + 1] = write_holder(each)
  end
  redis.call('HSET', HOLDERS, unpack(fields))
end

-- Takes from a bucket, if there is one; a negative amount gives back.
local function take(from, kind, amount)
  local limit, levels = from.limits[kind], from.levels
  if limit ~= NONE then levels[kind] = math.min(limit * UNIT, levels[kind] - amount * UNIT) end
end

-- Gives a request's concurrency back, once.
local function land(request)
  if not request.flying then return end
  request.flying = false
  for _, name in ipairs({TEAM, request.key_id}) do
    local from = holder(name)
    from.flying = math.max(0, from.flying - 1)
  end
end

-- Ends a request and counts what it used, instead of what was estimated or said before.
local function finish(request, prompt_tokens, output_tokens)
  land(request)
  if not request.limited then return end
  for _, name in ipairs({TEAM, request.key_id}) do
    local from = holder(name)
    take(from, INPUT, prompt_tokens - request.input_tokens)
    take(from, OUTPUT, output_tokens - request.output_tokens)
  end
  request.input_tokens, request.output_tokens = prompt_tokens, output_tokens
end

-- Drops requests, which are found by their ids.
local function forget(ids, requests)
  if #ids == 0 then return end
  local team = holder(TEAM)
  for _, id in ipairs(ids) do
    local request = requests[id]
    if request then
      team.held = math.max(0, team.held - request.hold)
      for _, from in ipairs({team, holder(request.key_id)}) do
        from.known = math.max(0, from.known - 1)
      end
    end
  end
  redis.call('HDEL', REQUESTS, unpack(ids))
  redis.call('ZREM', FLIGHTS, unpack(ids))
  redis.call('ZREM', LATE, unpack(ids))
end

-- Returns what is known of requests, by their ids.
local function find(ids)
  local found = {}
  if #ids == 0 then return found end
  for index, known in ipairs(redis.call('HMGET', REQUESTS, unpack(ids))) do
    if known then found[ids[index]] = read_request(known) end
  end
  return found
end

local function due(set, at)
  return redis.call('ZRANGEBYSCORE', set, '-inf', whole(at), 'LIMIT', 0, SWEEP)
end

local function first(set)
  return tonumber(redis.call('ZRANGE', set, 0, 0, 'WITHSCORES')[2] or math.huge)
end

-- Ends what nobody has in time, and drops what nobody has settled long after.
local function sweep()
  local team = holder(TEAM)
  if now < team.sweep_at then return end
  local ended = due(FLIGHTS, now)
  for id, request in pairs(find(ended)) do
    land(request)
    redis.call('HSET', REQUESTS, id, write_request(request))
    redis.call('ZADD', LATE, whole(request.ends), id)
  end
  if #ended > 0 then redis.call('ZREM', FLIGHTS, unpack(ended)) end
  local lost = due(LATE, now - LEASE_MS)
  forget(lost, find(lost))
  team.sweep_at = math.min(first(FLIGHTS), first(LATE) + LEASE_MS)
  save()
end
