-- Takes over the account's state, unless a newer one is known, and ends the requests in it.
-- KEYS[7] and on: the bucket of the API key of each request. ARGV[1]: the state; ARGV[2]: a list of
-- Settled, both in MessagePack.
local state = cmsgpack.unpack(ARGV[1])
local version = tonumber(redis.call('HGET', ACCOUNT, 'version'))
if not version or state.version >= version then
  for field, value in pairs(state) do redis.call('HSET', ACCOUNT, field, whole(value)) end
end
for index, settled in ipairs(cmsgpack.unpack(ARGV[2])) do
  local id = settled.request_id
  local request = find(id)
  if request then
    finish(id, request, KEYS[6 + index], settled.prompt_tokens, settled.output_tokens)
    forget(id, request)
  end
end
