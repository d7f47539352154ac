-- What every script shares. `time` is Redis' own clock, so that those of gateways do not matter.
--
-- account   hash: version, balance, day_end, day_spent, month_end, month_spent (micro-units, ms)
-- totals    hash: `held`, the sum of all holds; by the id of an API key its requests in flight
-- requests  hash: request id -> what is known of it until it is settled, in MessagePack
-- leases    sorted set: request id -> when it is forgotten, should nobody ever settle it
-- flights   sorted set: request id -> when it has ended, should nobody ever say so
-- bucket    hash: `at`, and the level of each token bucket at that time; no hash: all are full
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ACCOUNT, TOTALS, REQUESTS, LEASES, FLIGHTS, TEAM_BUCKET = unpack(KEYS, 1, 6)

-- Buckets count in sixty-thousandths: a limit per minute refills just itself in a millisecond.
local UNIT = 60000
local KINDS = {'requests', 'input_tokens', 'output_tokens'}
-- The recorder may be away for so long before a hold that it has not settled is dropped.
local LEASE_MS = 24 * 60 * 60 * 1000
local SWEEP = 100

-- Lua itself would write a large number with an exponent.
local function whole(number)
  return string.format('%.0f', number)
end

local function add(field, amount)
  if redis.call('HINCRBY', TOTALS, field, whole(amount)) <= 0 then
    redis.call('HDEL', TOTALS, field)
  end
end

-- How full the limited buckets are by now.
local function read_levels(bucket, limits)
  local levels = {}
  if not next(limits) then return levels end
  local stored = redis.call('HMGET', bucket, 'at', unpack(KINDS))
  local elapsed = math.max(0, now - (tonumber(stored[1]) or now))
  for index, kind in ipairs(KINDS) do
    local limit = limits[kind .. '_per_minute']
    if limit then
      local level = tonumber(stored[index + 1]) or limit * UNIT
      levels[kind] = math.min(limit * UNIT, level + elapsed * limit)
    end
  end
  return levels
end

local function write_levels(bucket, limits, levels)
  local fields = {'at', whole(now)}
  local full_in = 0
  for kind, level in pairs(levels) do
    local limit = limits[kind .. '_per_minute']
    fields[#fields + 1] = kind
    fields[#fields + 1] = whole(level)
    if limit > 0 then full_in = math.max(full_in, math.ceil((limit * UNIT - level) / limit)) end
  end
  if #fields == 2 then return end
  redis.call('HSET', bucket, unpack(fields))
  redis.call('PEXPIREAT', bucket, whole(now + full_in))
end

-- Takes from a bucket; a negative amount gives back.
local function take(bucket, limits, amounts)
  local levels = read_levels(bucket, limits)
  for kind, level in pairs(levels) do
    levels[kind] = math.min(limits[kind .. '_per_minute'] * UNIT, level - amounts[kind] * UNIT)
  end
  write_levels(bucket, limits, levels)
end

local function find(id)
  local known = redis.call('HGET', REQUESTS, id)
  return known and cmsgpack.unpack(known)
end

-- Gives a request's concurrency back, once.
local function land(id, request)
  if redis.call('ZREM', FLIGHTS, id) == 1 and request then add(request.key_id, -1) end
end

-- Ends a request and counts what it used, instead of what was estimated or said before.
local function finish(id, request, key_bucket, prompt_tokens, output_tokens)
  land(id, request)
  local amounts = {
    requests = 0,
    input_tokens = prompt_tokens - request.input_tokens,
    output_tokens = output_tokens - request.output_tokens,
  }
  if amounts.input_tokens == 0 and amounts.output_tokens == 0 then return end
  take(key_bucket, request.key, amounts)
  take(TEAM_BUCKET, request.team, amounts)
  request.input_tokens, request.output_tokens = prompt_tokens, output_tokens
  redis.call('HSET', REQUESTS, id, cmsgpack.pack(request))
end

-- Drops a request, and its hold with it.
local function forget(id, request)
  land(id, request)
  redis.call('ZREM', LEASES, id)
  redis.call('HDEL', REQUESTS, id)
  if request and request.hold > 0 then add('held', -request.hold) end
end

-- Ends and drops what nobody has in time.
local function sweep()
  local due = {'-inf', whole(now), 'LIMIT', 0, SWEEP}
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', FLIGHTS, unpack(due))) do land(id, find(id)) end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', LEASES, unpack(due))) do forget(id, find(id)) end
end
