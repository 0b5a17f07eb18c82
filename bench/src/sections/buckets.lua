local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local length, limit, units = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local newest = math.floor(now * 6 / length)
local stored = redis.call('GET', KEYS[1])
local first, a, b, c, d, e, f, g = newest, 0, 0, 0, 0, 0, 0, 0
if stored then
  first, a, b, c, d, e, f, g = struct.unpack('>I7I4I4I4I4I4I4I4', stored)
  while first < newest do
    first, a, b, c, d, e, f, g = first + 1, b, c, d, e, f, g, 0
    if a + b + c + d + e + f + g == 0 then first = newest end
  end
end
local used = a + b + c + d + e + f + g
if used + units > limit then
  return { 0, 0, tostring(first) }
end
redis.call('SET', KEYS[1], struct.pack('>I7I4I4I4I4I4I4I4', first, a, b, c, d, e, f, g + units), 'PX', math.ceil(length * 7 / 6000))
return { 1, limit - used - units, tostring(first) }
