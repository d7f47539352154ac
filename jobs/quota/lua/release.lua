-- Ends a request whose answer has ended. Its hold stays until the ledger has its entry.
-- KEYS[7]: the API key's bucket. ARGV: request id, prompt tokens, output tokens, and 1 to drop the
-- hold too: the request never began. Returns 1, or 0 if the request is not known, or not any more.
local id = ARGV[1]
local request = find(id)
if not request then return 0 end
finish(id, request, KEYS[7], tonumber(ARGV[2]), tonumber(ARGV[3]))
if ARGV[4] == '1' then forget(id, request) end
return 1
