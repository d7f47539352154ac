-- Ends what is due, and drops holders of which there is nothing to know.
-- ARGV[1]: how long ago a request must have ended, in ms. Returns the ids of such requests that
-- nobody has settled.
sweep()
local idle = {}
local names = redis.call('HKEYS', STATE)
for _, name in ipairs(names) do
  local each = holder(name)
  local is_idle = each.known == 0 and not each.version
  for kind, level in pairs(each.levels) do
    is_idle = is_idle and level >= each.limits[kind] * UNIT
  end
  if is_idle then idle[#idle + 1] = name end
end
if #idle > 0 then redis.call('HDEL', STATE, unpack(idle)) end
return due(LATE, now - tonumber(ARGV[1]))
