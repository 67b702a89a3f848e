-- Takes topics out of the shares of tenants that have no last value any more: 0.2.0 deletes values, and not these.
-- KEYS: the last values of a shard, their owners, what each tenant has.
-- ARGV: topics.
-- Reply: {'ok'}.
-- Writes: owners and shares.

for _, topic in ipairs(ARGV) do
  local owned = redis.call('ZRANGEBYLEX', KEYS[2], '[' .. topic .. '\0', '(' .. topic .. '\1')[1]
  if owned and not redis.call('HGET', KEYS[1], topic) then
    redis.call('ZREM', KEYS[2], owned)
    local size, tenant = string.match(owned, '%z(%d+) (.+)$')
    local number, bytes = string.match(tenant and redis.call('HGET', KEYS[3], tenant) or '', '^(%d+) (%d+)$')
    if number then
      redis.call('HSET', KEYS[3], tenant, string.format('%.0f %.0f', math.max(0, tonumber(number) - 1),
        math.max(0, tonumber(bytes) - tonumber(size))))
    end
  end
end
return {'ok'}
