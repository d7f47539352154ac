-- Lets a request in, or says what refuses it; then nothing is taken.
-- ARGV[1]: a Claim. Returns a Decision, both in MessagePack.
local id, _, key_id, input_tokens, lease_ms, team_limits, key_limits, spend, limited =
  unpack(cmsgpack.unpack(ARGV[1]), 1, 9)
-- Beyond that a bucket's level would not be a whole number (see `MAX_PER_MINUTE`).
local MOST_PER_MINUTE = 1e11
local MINUTE_MS = 60000

local function bounded(limits)
  -- What is not limited does not know the limits either.
  if not limited then return nil end
  local function bound(limit)
    return limit and math.min(limit, MOST_PER_MINUTE) or NONE
  end
  return {
    bound(limits[REQUEST]), bound(limits[INPUT]), bound(limits[OUTPUT]), bound(limits[CONCURRENCY])
  }
end

local team, key = holder(TEAM, bounded(team_limits)), holder(key_id, bounded(key_limits))
local again = redis.call('HEXISTS', REQUESTS, id) == 1
if not again then sweep() end

-- The moment and the buckets come first in every answer: limit and level of each, the key's before
-- the team's.
local function answer(what, ...)
  local a, b, c, d = key.limits, key.levels, team.limits, team.levels
  return cmsgpack.pack({what, now, {
    a[REQUEST], b[REQUEST], a[INPUT], b[INPUT], a[OUTPUT], b[OUTPUT],
    c[REQUEST], d[REQUEST], c[INPUT], d[INPUT], c[OUTPUT], d[OUTPUT],
  }, ...})
end

-- What of the team's money refuses the request, or nil.
local function money_refusal(hold, prepaid, daily_cap, monthly_cap)
  if team.version == NONE then return answer('unknown') end
  local held = team.held
  if prepaid and team.balance - held < hold then
    return answer('exhausted', team.balance, held)
  end
  local function capped(period, cap, spent, ends)
    -- What is known may be of a day or a month that is over.
    if now >= ends then spent = 0 end
    if cap and spent + held + hold > cap then return answer('capped', period, cap, spent, held) end
  end
  return capped('monthly', monthly_cap, team.month_spent, team.month_end)
    or capped('daily', daily_cap, team.day_spent, team.day_end)
end

-- Which limit refuses the request for longest, or nil.
local function limit_refusal()
  local longest, wait_ms = nil, -1
  local function refuse(name, kind, limit, wait)
    if wait > wait_ms then
      wait_ms = wait
      longest = {name, KINDS[kind], limit, wait}
    end
  end
  local function check(name, from)
    for kind = REQUEST, OUTPUT do
      local limit, level = from.limits[kind], from.levels[kind]
      if limit ~= NONE then
        -- An estimate beyond the whole limit passes once the bucket is full.
        local need = kind == INPUT and math.max(1, math.min(input_tokens, limit)) or 1
        if level < need * UNIT then
          local wait = limit > 0 and math.ceil((need * UNIT - level) / limit) or MINUTE_MS
          refuse(name, kind, limit, wait)
        end
      end
    end
    local most = from.limits[CONCURRENCY]
    -- Nobody knows when the next one ends.
    if most ~= NONE and from.flying >= most then refuse(name, CONCURRENCY, most, 1000) end
  end
  check('key', key)
  check('team', team)
  return longest and answer('limited', unpack(longest))
end

local hold = spend and spend[1] or 0

-- Asked for again, because the first answer was lost or because it may cost more now: it is in
-- already, and holds the most of what it was asked for with.
if again then
  local request = find({id})[id]
  local more = hold - request.hold
  if more > 0 then
    local refusal = money_refusal(more, unpack(spend, 2, 4))
    if refusal then return refusal end
    team.held = team.held + more
    request.hold = hold
    save()
    redis.call('HSET', REQUESTS, id, write_request(request))
  end
  return answer('granted')
end

local refusal = hold > 0 and money_refusal(unpack(spend, 1, 4)) or limited and limit_refusal()
if refusal then return refusal end

for _, from in ipairs({team, key}) do
  from.known = from.known + 1
  if limited then
    take(from, REQUEST, 1)
    take(from, INPUT, input_tokens)
    from.flying = from.flying + 1
  end
end
team.held = team.held + hold
local ends = now + lease_ms
team.sweep_at = math.min(team.sweep_at, ends)
save()
redis.call('ZADD', limited and FLIGHTS or LATE, whole(ends), id)
redis.call('HSET', REQUESTS, id, write_request({
  key_id = key_id,
  hold = hold,
  input_tokens = input_tokens,
  output_tokens = 0,
  flying = limited,
  limited = limited,
  ends = ends,
}))
return answer('granted')
