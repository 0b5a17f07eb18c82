local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local interval, burst, units = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local ends = tonumber(redis.call('GET', KEYS[1]) or now)
if ends < now then ends = now end
local next_ends = ends + interval * units
local allowed_at = next_ends - interval * burst
if allowed_at > now then
  return { 0, 0, tostring(allowed_at - now) }
end
redis.call('SET', KEYS[1], string.format('%.0f', next_ends), 'PX', math.ceil((next_ends - now) / 1000))
return { 1, math.floor((now - allowed_at) / interval), tostring(next_ends - now) }
