-- The budget of one tenant, in one key. Times are in microseconds.
--
-- ARGV[1] is the operation: 'spend', 'refund', 'lease' or 'return'. ARGV[2] is the time in tests, and empty otherwise. ARGV[3] are the quotas:
-- one line each, 'name rule anonymous shadow length fine most window bit'. For a window, 'length' is the window and
-- 'fine' the slice; for a smooth quota the interval and the burst; for a fixed one the period and nothing.
--   spend: ARGV[4] units, ARGV[5] 1 for an anonymous request.
--   refund: ARGV[4] units, ARGV[5] 1 for an anonymous request, ARGV[6] the generation, ARGV[7] the quotas of the spend,
--   ARGV[8] and on one mark per quota, empty for none.
--   lease: ARGV[4] units needed, ARGV[5] as above, ARGV[6] the most units wanted, ARGV[7] the lifetime.
--   return: like a refund, of units of a lease.
--
-- A lease is checked now and charged at its expiry. So all leases that can be used in an interval are charged after its
-- begin and checked before its end, and their sum fits. A node uses its units only before the expiry. A lease of no
-- more than the units needed is a spend: it is charged now, and its lifetime is zero.
--
-- The stored value is { generation, quotas, the latest expiry of a lease, meter, ... }. A meter is { used, entries } for a window, { whole, moved_up } for a
-- smooth quota, and { ends, count } for a fixed one. An entry has 17 bytes: when it was opened, how long until its last
-- unit, and how many units.
local ENTRY, SIZE = '>I7I6I4', 17
local NEVER = -1

local now
if ARGV[2] == '' then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = tonumber(ARGV[2])
end
local units, anonymous = tonumber(ARGV[4]), ARGV[5] == '1'

local function quotas_of(text)
  local quotas = {}
  for name, rule, anon, shadow, length, fine, most, window, bit in
    string.gmatch(text, '(%S+) (%a) (%d) (%d) (%d+) (%d+) (%d+) (%d+) (%d+)\n')
  do
    quotas[#quotas + 1] = {
      name = name, rule = rule, anon = anon == '1', shadow = shadow == '1',
      length = tonumber(length), fine = tonumber(fine), most = tonumber(most), window = tonumber(window), bit = bit,
    }
  end
  return quotas
end

local function entry(entries, number)
  local opened, length, count = struct.unpack(ENTRY, entries, number * SIZE + 1)
  return opened, opened + length, count
end

local function new_meter(quota)
  if quota.rule == 'w' then return { 0, '' } end
  return { 0, 0 }
end

-- removes what no longer counts
local function refresh(quota, meter)
  if quota.rule == 'w' then
    local entries, gone = meter[2], 0
    local number = #entries / SIZE
    while gone < number do
      local _, last, count = entry(entries, gone)
      if count > 0 and last + quota.length > now then break end
      meter[1] = meter[1] - count
      gone = gone + 1
    end
    if gone > 0 then meter[2] = string.sub(entries, gone * SIZE + 1) end
  elseif quota.rule == 'f' and meter[1] <= now then
    meter[1], meter[2] = now + quota.length - now % quota.length, 0
  end
end

local function used(quota, meter)
  if quota.rule == 'w' then return meter[1] end
  if quota.rule == 'f' then return meter[2] end
  return math.min(math.ceil(math.max(meter[1] - now, 0) / quota.length), 4294967295)
end

-- when these units of a window have come back
local function freed_at(quota, meter, wanted)
  local freed = 0
  for number = 0, #meter[2] / SIZE - 1 do
    local _, last, count = entry(meter[2], number)
    freed = freed + count
    if freed >= wanted then return last + quota.length end
  end
  return NEVER
end

-- when these units will fit, or nil if they fit now
local function full_until(quota, meter, wanted)
  if wanted == 0 then return nil end
  if wanted > quota.most then return NEVER end
  if quota.rule == 's' then
    local fits = meter[1] + (wanted - quota.fine) * quota.length
    if now >= fits then return nil end
    return fits
  end
  local over = used(quota, meter) + wanted - quota.most
  if over <= 0 then return nil end
  if quota.rule == 'w' then return freed_at(quota, meter, over) end
  return meter[1]
end

-- when one more unit than now will be left
local function rises_at(quota, meter)
  local spent = used(quota, meter)
  if spent == 0 then return now end
  if quota.rule == 'w' then return freed_at(quota, meter, math.max(spent + 1 - quota.most, 1)) end
  if quota.rule == 'f' then return meter[1] end
  return meter[1] - (math.min(spent, quota.fine) - 1) * quota.length
end

-- returns the mark by which a refund finds the spend
local function charge(quota, meter, wanted, at)
  if quota.rule == 's' then
    meter[1] = math.max(meter[1], at) + quota.length * wanted
    return meter[1] + meter[2]
  elseif quota.rule == 'f' then
    meter[2] = meter[2] + wanted
    return meter[1]
  end
  local spent_at, entries = at, meter[2]
  meter[1] = meter[1] + wanted
  if #entries > 0 then
    local newest = #entries / SIZE - 1
    local opened, last, count = entry(entries, newest)
    spent_at = math.max(at, last)
    if spent_at - opened < quota.fine then
      meter[2] = string.sub(entries, 1, newest * SIZE) .. struct.pack(ENTRY, opened, spent_at - opened, count + wanted)
      return spent_at
    end
  end
  meter[2] = entries .. struct.pack(ENTRY, spent_at, 0, wanted)
  return spent_at
end

-- 'held' is when the last lease expires: units charged then stay charged
local function refund(quota, meter, mark, wanted, held)
  if quota.rule == 's' then
    local own_end = mark - meter[2]
    local back = math.min(quota.length * wanted, math.max(own_end - math.max(now, held), 0))
    -- a lease can get units back several times
    if own_end < meter[1] or ARGV[1] == 'return' then meter[2] = meter[2] + back end
    meter[1] = math.max(meter[1] - back, 0)
  elseif quota.rule == 'f' then
    if meter[1] == mark then meter[2] = math.max(meter[2] - wanted, 0) end
  else
    local entries, owed, is_own = meter[2], wanted, true
    for number = #entries / SIZE - 1, 0, -1 do
      local opened, last, count = entry(entries, number)
      if opened <= mark then
        -- the entry that holds the spend has expired
        if is_own and last < mark then break end
        is_own = false
        local taken = math.min(owed, count)
        owed = owed - taken
        entries = string.sub(entries, 1, number * SIZE) .. struct.pack(ENTRY, opened, last - opened, count - taken)
          .. string.sub(entries, (number + 1) * SIZE + 1)
        if owed == 0 then break end
      end
    end
    meter[1], meter[2] = meter[1] - (wanted - owed), entries
  end
end

-- another rule: units that count now are treated as spent now, or when the last lease expires
local function converted(was, meter, is, held)
  if was.rule == is.rule and (was.rule == 'w' or was.length == is.length) then return { meter[1], meter[2] } end
  local count = used(was, meter)
  if is.rule == 's' then count = math.min(count, is.fine) end
  local carried, at = new_meter(is), math.max(now, held)
  if count > 0 then
    if is.rule == 'f' then carried[1] = at + is.length - at % is.length end
    charge(is, carried, count, at)
  end
  return carried
end

-- the meters of new quotas from those of the old ones: by name, or else from the one that knows most
local function convert(old, meters, new, held)
  for i, was in ipairs(old) do refresh(was, meters[i]) end
  local all = {}
  for n, is in ipairs(new) do
    local same, plain, best, rank
    for i, was in ipairs(old) do
      if was.name == is.name and was.anon == is.anon then same = same or i end
      if was.name == is.name and not was.anon then plain = plain or i end
      local covers = was.rule == 'w' and was.window >= is.window
      local own = {
        was.anon and 0 or 1, was.shadow and 0 or 1, covers and 1 or 0, covers and 0 or used(was, meters[i]), was.window,
      }
      local better = rank == nil
      if rank then
        local i = 1
        while i < 5 and own[i] == rank[i] do i = i + 1 end
        better = own[i] >= rank[i]
      end
      if better then best, rank = i, own end
    end
    local source = same or plain or best
    all[n] = source and converted(old[source], meters[source], is, held) or new_meter(is)
  end
  return all
end

local key, text = KEYS[1], ARGV[3]
local quotas = quotas_of(text)
local stored = redis.call('GET', key)
local generation, stored_text, held, meters, is_new_plan = now, text, 0, {}, false
if stored then
  local state = cmsgpack.unpack(stored)
  generation, stored_text, held = state[1], state[2], state[3]
  for i = 4, #state do meters[#meters + 1] = state[i] end
  if stored_text ~= text then
    meters, is_new_plan = convert(quotas_of(stored_text), meters, quotas, held), true
  end
else
  for i, quota in ipairs(quotas) do meters[i] = new_meter(quota) end
end

-- units of another plan stay spent, and the state of that plan is not converted back
if ARGV[1] == 'return' and stored_text ~= ARGV[7] then return false end

local function store()
  local idle = now
  for i, quota in ipairs(quotas) do
    local meter = meters[i]
    if quota.rule == 'w' and #meter[2] > 0 then
      local _, last = entry(meter[2], #meter[2] / SIZE - 1)
      idle = math.max(idle, last + quota.length)
    elseif quota.rule ~= 'w' and (quota.rule == 's' or meter[2] > 0) then
      idle = math.max(idle, meter[1])
    end
  end
  -- a clock that steps back by less than a second loses nothing
  local lives = string.format('%.0f', math.ceil((idle - now) / 1000) + 1000)
  redis.call('SET', key, cmsgpack.pack({ generation, text, held, unpack(meters) }), 'PX', lives)
end

local function whole(number) return string.format('%.0f', number) end

-- number of the quota, remaining, and the time until the reset
local function standing(number, reset)
  local quota = quotas[number]
  local remaining = math.max(quota.most - used(quota, meters[number]), 0)
  if reset ~= NEVER then reset = math.max(reset - now, 0) end
  return remaining, reset
end

local function charged(quota) return anonymous or not quota.anon end

-- how many units to lease beyond those needed, and for how long
local function beyond(needed, most, lifetime)
  local left = math.huge
  for i, quota in ipairs(quotas) do
    if quota.rule == 'f' then lifetime = math.min(lifetime, quota.length - now % quota.length) end
    if charged(quota) and not quota.shadow then left = math.min(left, quota.most - used(quota, meters[i])) end
  end
  -- a node can't use it that fast
  if lifetime < 1000 then return 0, 0 end
  -- other nodes need some, too
  return math.max(math.min(most - needed, math.floor((left - needed) / 4)), 0), lifetime
end

local function decide(wanted, most, lifetime)
  local refused, refused_reset, shadow, shadow_reset
  local would_refuse = {}
  for i, quota in ipairs(quotas) do
    if charged(quota) then
      refresh(quota, meters[i])
      local reset = full_until(quota, meters[i], wanted)
      if reset then
        if quota.shadow then
          shadow, shadow_reset = i, reset
          would_refuse[quota.bit] = true
        else
          local order = reset == NEVER and math.huge or reset
          if not refused or refused_reset < order then refused, refused_reset = i, order end
        end
      end
    end
  end
  if refused then
    local remaining, reset = standing(refused, refused_reset == math.huge and NEVER or refused_reset)
    if is_new_plan then store() end
    return { 'refused', refused, whole(remaining), whole(reset) }
  end
  local at, reply = now, nil
  if most then
    local more, lasts = 0, 0
    if most > wanted then more, lasts = beyond(wanted, most, lifetime) end
    if more > 0 then
      wanted, at = wanted + more, now + lasts
      held = math.max(held, at)
    end
    reply = { 'leased', 0, '0', '0', whole(generation), wanted, whole(at - now) }
  else
    reply = { 'admitted', 0, '0', '0', 0, '0', '0', whole(generation) }
    if shadow then
      local remaining, reset = standing(shadow, shadow_reset)
      reply[5], reply[6], reply[7] = shadow, whole(remaining), whole(reset)
    end
  end
  local least, least_whole, latest
  for i, quota in ipairs(quotas) do
    local mark = ''
    if charged(quota) and not would_refuse[quota.bit] then
      if wanted > 0 then mark = whole(charge(quota, meters[i], wanted, at)) end
      if not quota.shadow then
        local reset = rises_at(quota, meters[i])
        local remaining, wait = standing(i, reset)
        -- the least left, then one that is whole, then the one that comes back later
        local is_whole = remaining >= quota.most
        local order = reset == NEVER and math.huge or reset
        local tighter = least == nil or remaining < least
        if not tighter and remaining == least then
          if is_whole ~= least_whole then tighter = is_whole else tighter = order > latest end
        end
        if tighter then
          least, least_whole, latest = remaining, is_whole, order
          reply[2], reply[3], reply[4] = i, whole(remaining), whole(wait)
        end
      end
    end
    reply[#reply + 1] = mark
  end
  if wanted > 0 or is_new_plan then store() end
  return reply
end

if ARGV[1] == 'spend' then return decide(units) end
if ARGV[1] == 'lease' then return decide(units, tonumber(ARGV[6]), tonumber(ARGV[7])) end

if not stored then return false end
-- a spend of another plan, or from before a reset, no longer counts
if whole(generation) == ARGV[6] and stored_text == ARGV[7] and stored_text == text then
  for i, quota in ipairs(quotas) do
    refresh(quota, meters[i])
    local mark = ARGV[7 + i]
    if mark and mark ~= '' then refund(quota, meters[i], tonumber(mark), units, held) end
  end
  store()
end
return decide(0)
