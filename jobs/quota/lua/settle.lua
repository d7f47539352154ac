-- Takes over the account's state, unless a newer one is known, and ends the requests in it.
-- KEYS[7] and on: the bucket of the API key of each request. ARGV[1]: the state; ARGV[2]: a list of
-- Settled, both in MessagePack.
local state = cmsgpack.unpack(ARGV[1])
local version = tonumber(redis.call('HGET', ACCOUNT, 'version'))
if not version or state.version >= version then
  for field, value in pairs(state) do redis.call('HSET', ACCOUNT, field, whole(value)) end
end
for index, request in ipairs(cmsgpack.unpack(ARGV[2])) do
  local id = request.request_id
  finish(id, KEYS[6 + index], request.prompt_tokens, request.output_tokens)
  forget(id)
end
