-- Lets a request in, or says what refuses it; then nothing is taken.
-- KEYS[7]: the API key's bucket. ARGV[1]: a Claim. Returns a Decision, both in MessagePack.
local claim = cmsgpack.unpack(ARGV[1])
local id, spend = claim.request_id, claim.spend
-- Beyond that a bucket's level would not be a whole number (see `MAX_PER_MINUTE`).
local MOST_PER_MINUTE = 1e11
local MINUTE_MS = 60000

local function bounded(limits)
  for name, limit in pairs(limits) do limits[name] = math.min(limit, MOST_PER_MINUTE) end
  return limits
end

local key_limits, team_limits = bounded(claim.key or {}), bounded(claim.team or {})
local again = redis.call('HEXISTS', REQUESTS, id) == 1
if not again then sweep() end

local holders = {
  {
    name = 'key',
    bucket = KEYS[7],
    limits = key_limits,
    levels = read_levels(KEYS[7], key_limits),
    flying = tonumber(redis.call('HGET', TOTALS, claim.key_id) or 0),
  },
  {
    name = 'team',
    bucket = TEAM_BUCKET,
    limits = team_limits,
    levels = read_levels(TEAM_BUCKET, team_limits),
    flying = redis.call('ZCARD', FLIGHTS),
  },
}

local function answer(decision)
  local buckets = {}
  for _, holder in ipairs(holders) do
    for _, kind in ipairs(KINDS) do
      local level = holder.levels[kind]
      if level then
        local limit = holder.limits[kind .. '_per_minute']
        buckets[#buckets + 1] = {holder = holder.name, kind = kind, limit = limit, level = level}
      end
    end
  end
  decision.now_ms = now
  decision.buckets = buckets
  return cmsgpack.pack(decision)
end

-- What of the team's money refuses the request, or nil.
local function money_refusal(held)
  local account = redis.call(
    'HMGET', ACCOUNT, 'version', 'balance', 'day_end', 'day_spent', 'month_end', 'month_spent'
  )
  if not account[1] then return {type = 'unknown'} end
  for index, value in ipairs(account) do account[index] = tonumber(value) end
  local _, balance, day_end, day_spent, month_end, month_spent = unpack(account)
  if spend.prepaid and balance - held < spend.hold_micros then
    return {type = 'exhausted', balance_micros = balance, held_micros = held}
  end
  local function capped(period, cap, spent, ends)
    -- What is known may be of a day or a month that is over.
    if now >= ends then spent = 0 end
    if cap and spent + held + spend.hold_micros > cap then
      return {
        type = 'capped', period = period,
        cap_micros = cap, spent_micros = spent, held_micros = held,
      }
    end
  end
  return capped('monthly', spend.monthly_cap_micros, month_spent, month_end)
    or capped('daily', spend.daily_cap_micros, day_spent, day_end)
end

-- Which limit refuses the request for longest, or nil.
local function limit_refusal()
  local longest
  local function refuse(holder, kind, limit, wait)
    if not longest or wait > longest.wait_ms then
      longest =
        {type = 'limited', holder = holder.name, kind = kind, limit = limit, wait_ms = wait}
    end
  end
  for _, holder in ipairs(holders) do
    for _, kind in ipairs(KINDS) do
      local limit, level = holder.limits[kind .. '_per_minute'], holder.levels[kind]
      local need = 1
      -- An estimate beyond the whole limit passes once the bucket is full.
      if level and kind == 'input_tokens' then
        need = math.max(1, math.min(claim.input_tokens, limit))
      end
      if level and level < need * UNIT then
        local wait = limit > 0 and math.ceil((need * UNIT - level) / limit) or MINUTE_MS
        refuse(holder, kind, limit, wait)
      end
    end
    local most = holder.limits.max_concurrent
    -- Nobody knows when the next one ends.
    if most and holder.flying >= most then refuse(holder, 'concurrency', most, 1000) end
  end
  return longest
end

-- Asked for the second time because the first answer was lost: it is in already.
if again then return answer({type = 'granted'}) end

local hold = spend and spend.hold_micros or 0
if hold > 0 then
  local refusal = money_refusal(tonumber(redis.call('HGET', TOTALS, 'held') or 0))
  if refusal then return answer(refusal) end
end
local refusal = limit_refusal()
if refusal then return answer(refusal) end

for _, holder in ipairs(holders) do
  local levels = holder.levels
  for kind, amount in pairs({requests = 1, input_tokens = claim.input_tokens}) do
    if levels[kind] then levels[kind] = levels[kind] - amount * UNIT end
  end
  write_levels(holder.bucket, holder.limits, levels)
end
local ends = now + claim.lease_ms
redis.call('ZADD', FLIGHTS, whole(ends), id)
redis.call('ZADD', LEASES, whole(ends + LEASE_MS), id)
redis.call('HSET', REQUESTS, id, cmsgpack.pack({
  key_id = claim.key_id,
  hold = hold,
  input_tokens = claim.input_tokens,
  output_tokens = 0,
  key = key_limits,
  team = team_limits,
}))
add(claim.key_id, 1)
if hold > 0 then add('held', hold) end
return answer({type = 'granted'})
