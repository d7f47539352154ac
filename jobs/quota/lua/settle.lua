-- Takes over the account's state, unless a newer one is known, and ends requests.
-- ARGV[1]: the state, or nil; ARGV[2]: a list of Ended, both in MessagePack. Of a request that is
-- not known, or not any more, nothing is taken.
local state, ended = cmsgpack.unpack(ARGV[1]), cmsgpack.unpack(ARGV[2])
local team = holder(TEAM)
if state and state.version >= team.version then
  for field, value in pairs(state) do team[field] = value end
end
local ids = {}
for index, each in ipairs(ended) do ids[index] = each[1] end
local requests = find(ids)
local kept, settled = {}, {}
for _, each in ipairs(ended) do
  local id, prompt_tokens, output_tokens, is_settled = unpack(each)
  local request = requests[id]
  if request and not request.is_settled then
    finish(request, prompt_tokens, output_tokens)
    if is_settled then
      request.is_settled = true
      settled[#settled + 1] = id
    else
      kept[#kept + 1] = id
      kept[#kept + 1] = write_request(request)
    end
  end
end
if #kept > 0 then redis.call('HSET', REQUESTS, unpack(kept)) end
forget(settled, requests)
save()
