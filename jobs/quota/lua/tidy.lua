-- Ends what is due, and drops holders of which there is nothing to know.
-- ARGV[1]: how long ago a request must have ended, in ms. Returns the ids of such requests that
-- nobody has settled.
sweep()
local idle = {}
local names = redis.call('HKEYS', HOLDERS)
for _, name in ipairs(names) do
  local each = holder(name)
  local is_idle = each.known == 0 and each.version == NONE
  for kind = REQUEST, OUTPUT do
    local limit = each.limits[kind]
    is_idle = is_idle and (limit == NONE or each.levels[kind] >= limit * UNIT)
  end
  if is_idle then idle[#idle + 1] = name end
end
if #idle > 0 then redis.call('HDEL', HOLDERS, unpack(idle)) end
return due(LATE, now - tonumber(ARGV[1]))
