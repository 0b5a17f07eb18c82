-- The budget of one tenant and its open calls, in one key. Times are in microseconds, except the interval of a smooth quota: it
-- is in nanoseconds, so that a fast rate is exact for many units.
--
-- ARGV[1] is the operation: 'spend', 'refund', 'lease', 'return', 'debit', 'hold', 'commit', 'renew' or 'reset'. ARGV[2] is
-- the time in tests, and empty otherwise.
-- ARGV[3] is the plan: the number of quotas, and each of them as in PLAN. For a window, 'length' is the window and
-- 'fine' the slice; for a smooth quota the interval and the burst; for a fixed one the period and nothing.
--   spend: ARGV[4] units, ARGV[5] 1 for an anonymous request.
--   refund: ARGV[4] units, ARGV[5] 1 for an anonymous request, ARGV[6] the generation, ARGV[7] the plan of the spend,
--   ARGV[8] and on one mark per quota, empty for none.
--   lease: ARGV[4] units needed, ARGV[5] as above, ARGV[6] the most units wanted, ARGV[7] the lifetime.
--   return: like a refund, of units of a lease.
--   debit: ARGV[5] as above, ARGV[6] and on units of each quota, which a node has admitted without this server. They are
--   charged even if they do not fit.
--   hold: ARGV[4] units, ARGV[5] as above, ARGV[6] the id of the call, ARGV[7] how long its slot lasts unless it is renewed,
--   ARGV[8] the most units that it may use, ARGV[9] when its estimate expires, from now. If that is zero, the units are no
--   estimate, and are charged now.
--   commit: ARGV[6] the id of a call that has ended, ARGV[7] the units that it has used, empty for its estimate, 'undo' if it
--   was opened in vain: then the units that were charged for it come back, too. ARGV[8] 1 if it was sent before without a reply.
--   renew: ARGV[6] how long the slots last from now on, ARGV[7] and on an id, 1 for an anonymous request, the estimate, and
--   the most units.
--   reset: forgets all units and estimates, but no slot. The last three use the plan that is stored, if one is.
--
-- A lease is checked now and charged at its expiry. So all leases that can be used in an interval are charged after its
-- begin and checked before its end, and their sum fits. A node uses its units only before the expiry. A lease of no
-- more than the units needed is a spend: it is charged now, and its lifetime is zero.
--
-- The estimate of an open call counts until it is charged, when the call ends or the estimate expires. Estimates that have
-- expired are charged before anything else, each at its expiry, so that nothing depends on when the key is used. A call takes a
-- slot of each quota of concurrent calls until it ends, or until its slot was not renewed in time. A node adds slots again that it
-- could not renew, even if there is no room. A call that was added in this way may have ended already: an end that is sent again
-- charges it nothing, because the first one may have done so.
--
-- The stored value is the generation, when the last lease expires, whether calls are open, the plan, one meter per quota
-- except those of concurrent calls, and, if calls are open, these, what each quota counts of them, and the TAIL. So the calls are
-- read one by one only when they change, or when a slot or an estimate has ended. The generation is when the value was
-- created or its plan changed, or later, so that no two are equal. The meter of a window has entries, how many units they have, and how many they are; that of a smooth quota 'whole' and 'moved_up';
-- that of a fixed one 'ends' and 'count'. An entry is when it was opened, how long until its last unit, and how many
-- units. Replies are packed as in REFUSED, ADMITTED and FULL.
local spread = unpack
local unpack, pack, sub, ceil, max, min = struct.unpack, struct.pack, string.sub, math.ceil, math.max, math.min
-- without the name, which follows
local PLAN, PLAN_SIZE = '>BBBBI4I7I7I7Bc0', 30
local HEAD, HEAD_SIZE = '>I7I7B', 15
local ENTRY, SIZE = '>I7I6I4', 17
-- an open call: its id, when its slot ends, when its estimate expires, the estimate, the most units, 1 if the estimate counts
-- and 2 if a renewal has added the call, whether it is anonymous, and the bits of shadow quotas that don't count it. A call with a
-- slot alone has no most units, and the mark and the number of the units that were charged for it instead of an estimate.
local CALL, CALL_SIZE = '>c8I7I7I4I4BBB', 33
local HELD, ADDED = 1, 2
-- what a quota counts of open calls: units, or slots if it is one of concurrent calls, and when the last estimate expires
local COUNT, COUNT_SIZE = '>I7I7', 14
-- when the next slot or estimate ends, or earlier; how long the value is kept for the calls; the number of calls
local TAIL, TAIL_SIZE = '>I7I7I4', 18
local MOST_CALLS = 1024
-- when to try again if only slots are missing: no one knows when a call ends
local SLOT_RETRY = 1000000
local WINDOW, SMOOTH, FIXED, CONCURRENT = 119, 115, 102, 99
local NEVER = -1
local MOST_USED = 4294967295
-- milliseconds for which a value is kept after its use: a clock that steps back by less loses nothing
local SPARE = 1000
-- a calendar window must not begin twice, so its count is kept for one more window, at most this many microseconds
local KEPT = 3600000000

local operation, plan, units = ARGV[1], ARGV[3], tonumber(ARGV[4])
local now
if ARGV[2] == '' then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = tonumber(ARGV[2])
end
-- the time in which these units of a smooth quota come back, rounded up, with either sign
local function time_of(count, interval) return ceil(count * interval / 1000) end

-- the units of a smooth quota that have not come back yet
local function units_of(time, interval, spare)
  return min(ceil(max(time * 1000 - min(spare, interval - 1), 0) / interval), MOST_USED)
end

-- less than a microsecond is the rounding of a charge: clients do not see it as a unit
local ROUNDING = 999

local key = KEYS[1]
local stored = redis.call('GET', key)
local has_calls = stored and string.byte(stored, HEAD_SIZE) == 1
-- the calls, packed; what the stored quotas count of them; the rest of the TAIL
local calls, stored_counts, next_end, calls_until = '', '', 0, 0
if has_calls then
  local tail, number = #stored - TAIL_SIZE, nil
  next_end, calls_until, number = unpack(TAIL, stored, tail + 1)
  local counts = tail - string.byte(stored, HEAD_SIZE + 1) * COUNT_SIZE
  local from = counts - number * CALL_SIZE
  calls, stored_counts, stored = sub(stored, from + 1, counts), sub(stored, counts + 1, tail), sub(stored, 1, from)
end
local is_new_plan = stored and sub(stored, HEAD_SIZE + 1, HEAD_SIZE + #plan) ~= plan

-- the time; number of the quota, with 128 more if the time is an estimate, units left, and the time until they will fit
local REFUSED = '>c1dBI4d'
-- the same until there are more; the generation; a shadow quota that would refuse; units granted and the lifetime of a
-- lease. One mark per quota follows.
-- If there are several quotas or open calls, the units that each quota counts end all replies.
local ADMITTED = '>c1dBI4ddBI4dI4d'
-- the key has too many open calls: the time; how many it may have, and the time until a retry
local FULL = '>c1dI4d'

-- The usual case, written for speed: no call is open, the plan has not changed, and all quotas are enforced and count this
-- request. All else is below, and decides the same. The meters are read from the last one on, because only their ends are known.
local is_usual = operation == 'spend' or (operation == 'lease' and tonumber(ARGV[6]) <= units)
if is_usual and units > 0 and not is_new_plan and not has_calls then
  local number = string.byte(plan)
  -- for several quotas: where each begins in the plan, what it counts before, and the marks, with what it counts after
  local places, befores, afters
  if number > 1 then
    local place = 2
    places, befores, afters = { 0, 0, 0, 0, 0, 0 }, { 0, 0, 0, 0, 0, 0 }, { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
    for i = 1, number do
      places[i] = place
      place = place + PLAN_SIZE + string.byte(plan, place + PLAN_SIZE - 1)
    end
  end
  local ends, idle, meters = stored and #stored, now, ''
  local refused, refused_left, refused_reset, least_number, least, least_reset, least_whole, only_mark
  for i = number, 1, -1 do
    local rule, anon, shadow, _, most, length, fine = unpack('>BBBBI4I7I7', plan, places and places[i] or 2)
    if rule == CONCURRENT or shadow == 1 or (anon == 1 and ARGV[5] == '0') or units > most then
      is_usual = false
      break
    end
    local before, after, left, reset, mark, meter, last
    if rule == WINDOW then
      local from, to, used = 1, 1, 0
      local opened, lasted, count
      if stored then
        used, from = unpack('>I4I2', stored, ends - 5)
        to = ends - 5
        from = to - from * SIZE
        ends = from - 1
      end
      while from < to do
        opened, lasted, count = unpack(ENTRY, stored, from)
        if count > 0 and opened + lasted + length > now then break end
        used, from = used - count, from + SIZE
      end
      left, before, after = most - used - units, used, used + units
      if left < 0 then
        while left + count < 0 do
          left, from = left + count, from + SIZE
          opened, lasted, count = unpack(ENTRY, stored, from)
        end
        left, reset = most - used, opened + lasted + length
      else
        local entries = (to - from) / SIZE
        if entries == 0 then
          opened, count, mark, reset = now, 0, now, now + length
        else
          reset = opened + lasted + length
          if entries > 1 then opened, lasted, count = unpack(ENTRY, stored, to - SIZE) end
          mark = max(now, opened + lasted)
          if mark - opened >= fine then
            opened, count = mark, 0
          else
            entries, to = entries - 1, to - SIZE
            if entries == 0 then reset = mark + length end
          end
        end
        meter = (stored and sub(stored, from, to - 1) or '')
          .. pack('>I7I6I4I4I2', opened, mark - opened, count + units, after, entries + 1) .. meters
        last = mark + length
      end
    elseif rule == SMOOTH then
      local whole, moved_up = 0, 0
      if stored then
        whole, moved_up = unpack('>dd', stored, ends - 15)
        ends = ends - 16
      end
      before = units_of(whole - now, length, 0)
      reset = whole + time_of(units - fine, length)
      if now >= reset then
        whole = max(whole, now) + time_of(units, length)
        mark, meter, last = whole + moved_up, pack('>dd', whole, moved_up) .. meters, whole
        after = units_of(whole - now, length, 0)
      end
      local used = units_of(whole - now, length, ROUNDING)
      left = most - used
      if mark then reset = whole + time_of(1 - min(used, fine), length) end
    else
      local count = 0
      if stored then
        reset, count = unpack('>dI4', stored, ends - 11)
        ends = ends - 12
      end
      if not stored or reset <= now then reset, count = now + length - now % length, 0 end
      left, before, after = most - count - units, count, count + units
      if left < 0 then
        left = most - count
      else
        mark, meter, last = reset, pack('>dI4', reset, after) .. meters, reset + min(length, KEPT)
      end
    end
    left = max(left, 0)
    if befores then befores[i] = before end
    if not mark then
      -- the one that refuses for longest, and the first of those
      if not refused or refused_reset <= reset then refused, refused_left, refused_reset = i, left, reset end
    elseif not refused then
      -- the least left, then one that is whole, then the one that comes back later, then the first
      local is_whole = left >= most
      local comes_first = not least or left < least
      if left == least then
        if is_whole ~= least_whole then comes_first = is_whole else comes_first = reset >= least_reset end
      end
      if comes_first then least_number, least, least_reset, least_whole = i, left, reset, is_whole end
      idle, meters = max(idle, last), meter
      if afters then afters[i], afters[number + i] = mark, after else only_mark = mark end
    end
  end
  if is_usual and refused then
    local reply = pack(REFUSED, 'r', now, refused, refused_left, max(refused_reset - now, 0))
    return befores and reply .. pack('>' .. sub('I4I4I4I4I4I4', 1, 2 * number), spread(befores)) or reply
  end
  if is_usual then
    local head = stored and sub(stored, 1, HEAD_SIZE + #plan) or pack(HEAD, now, 0, 0) .. plan
    redis.call('SET', key, head .. meters, 'PX', ceil((idle - now) / 1000) + SPARE)
    local generation = stored and unpack('>I7', stored) or now
    least_reset = max(least_reset - now, 0)
    if only_mark then
      return pack('>c1dBI4ddBI4dI4dd', 'a', now, 1, least, least_reset, generation, 0, 0, 0, units, 0, only_mark)
    end
    return pack(ADMITTED .. sub('dddddd', 1, number) .. sub('I4I4I4I4I4I4', 1, 2 * number), 'a', now, least_number, least,
      least_reset, generation, 0, 0, 0, units, 0, spread(afters))
  end
end

local anonymous = ARGV[5] == '1'
local opens = operation == 'hold'

local function clear(quota)
  quota.held, quota.latest = 0, 0
  if quota.rule == WINDOW then quota.used, quota.entries = 0, ''
  elseif quota.rule == SMOOTH then quota.whole, quota.moved_up = 0, 0
  else quota.ends, quota.count = 0, 0 end
end

-- returns quotas with empty meters, and where the plan ends
local function read_plan(text, at)
  local quotas, number = {}, nil
  number, at = unpack('B', text, at)
  for i = 1, number do
    local rule, anon, shadow, bit, most, length, fine, window, name
    rule, anon, shadow, bit, most, length, fine, window, name, at = unpack(PLAN, text, at)
    quotas[i] = {
      rule = rule, anon = anon == 1, shadow = shadow == 1, bit = bit, most = most, length = length, fine = fine,
      window = window, name = name,
    }
    clear(quotas[i])
  end
  return quotas, at
end

-- reads what the quotas of the stored plan count, and their meters from the last one on
local function read_meters(quotas, state)
  local ends = #state
  for i = #quotas, 1, -1 do
    local quota = quotas[i]
    if has_calls then quota.held, quota.latest = unpack(COUNT, stored_counts, (i - 1) * COUNT_SIZE + 1) end
    if quota.rule == WINDOW then
      local used, number = unpack('>I4I2', state, ends - 5)
      quota.used, quota.entries = used, sub(state, ends - 5 - number * SIZE, ends - 6)
      ends = ends - 6 - number * SIZE
    elseif quota.rule == SMOOTH then
      quota.whole, quota.moved_up = unpack('>dd', state, ends - 15)
      ends = ends - 16
    elseif quota.rule == FIXED then
      quota.ends, quota.count = unpack('>dI4', state, ends - 11)
      ends = ends - 12
    end
  end
end

local function entry(entries, number)
  local opened, lasted, count = unpack(ENTRY, entries, number * SIZE + 1)
  return opened, opened + lasted, count
end

-- removes what no longer counts
local function refresh(quota)
  if quota.rule == WINDOW then
    local entries, gone = quota.entries, 0
    local number = #entries / SIZE
    while gone < number do
      local _, last, count = entry(entries, gone)
      if count > 0 and last + quota.length > now then break end
      quota.used = quota.used - count
      gone = gone + 1
    end
    if gone > 0 then quota.entries = sub(entries, gone * SIZE + 1) end
  elseif quota.rule == FIXED and quota.ends <= now then
    quota.ends, quota.count = now + quota.length - now % quota.length, 0
  end
end

local function used(quota, spare)
  if quota.rule == WINDOW then return quota.used end
  if quota.rule == FIXED then return quota.count end
  if quota.rule == CONCURRENT then return 0 end
  return units_of(quota.whole - now, quota.length, spare or 0)
end

-- when these units of a window have come back
local function freed_at(quota, wanted)
  local freed = 0
  for number = 0, #quota.entries / SIZE - 1 do
    local _, last, count = entry(quota.entries, number)
    freed = freed + count
    if freed >= wanted then return last + quota.length end
  end
  return NEVER
end

-- when these units will fit, or nil if they fit now
local function full_until(quota, wanted)
  if wanted == 0 then return nil end
  if wanted > quota.most then return NEVER end
  if quota.rule == SMOOTH then
    local fits = quota.whole + time_of(wanted - quota.fine, quota.length)
    if now >= fits then return nil end
    return fits
  end
  local over = used(quota) + wanted - quota.most
  if over <= 0 then return nil end
  if quota.rule == WINDOW then return freed_at(quota, over) end
  return quota.ends
end

-- when one more unit than now will be left
local function rises_at(quota)
  local spent = used(quota)
  if spent == 0 then return now end
  if quota.rule == WINDOW then return freed_at(quota, max(spent + 1 - quota.most, 1)) end
  if quota.rule == FIXED then return quota.ends end
  return quota.whole + time_of(1 - min(spent, quota.fine), quota.length)
end

-- returns the mark by which a refund finds the spend
local function charge(quota, wanted, at)
  if quota.rule == CONCURRENT or wanted <= 0 then return NEVER end
  if quota.rule == SMOOTH then
    quota.whole = max(quota.whole, at) + time_of(wanted, quota.length)
    return quota.whole + quota.moved_up
  elseif quota.rule == FIXED then
    quota.count = quota.count + wanted
    return quota.ends
  end
  local entries = quota.entries
  quota.used = quota.used + wanted
  if #entries > 0 then
    local newest = #entries / SIZE - 1
    local opened, last, count = entry(entries, newest)
    at = max(at, last)
    if at - opened < quota.fine then
      quota.entries = sub(entries, 1, newest * SIZE) .. pack(ENTRY, opened, at - opened, count + wanted)
      return at
    end
  end
  quota.entries = entries .. pack(ENTRY, at, 0, wanted)
  return at
end

local calls_changed = false

local function read_call(at)
  local id, slot, ends, estimate, at_most, state, is_anonymous, uncounted = unpack(CALL, calls, at)
  return {
    id = id, slot = slot, ends = ends, estimate = estimate, at_most = at_most, state = state, is_anonymous = is_anonymous,
    uncounted = uncounted, at = at,
  }
end

local function pack_call(call)
  return pack(CALL, call.id, call.slot, call.ends, call.estimate, call.at_most, call.state, call.is_anonymous,
    call.uncounted)
end

local function find_call(id)
  local at = 0
  repeat at = string.find(calls, id, at + 1, true) until not at or at % CALL_SIZE == 1
  return at
end

-- changes all calls
local function change_calls(change)
  local changed = {}
  for at = 1, #calls, CALL_SIZE do
    local call = read_call(at)
    change(call)
    changed[#changed + 1] = pack_call(call)
  end
  calls, calls_changed = table.concat(changed), true
end

local function counts_call(quota, is_anonymous, uncounted)
  return (is_anonymous == 1 or not quota.anon) and bit.band(uncounted, quota.bit) == 0
end

-- an undo no longer finds what was charged for a slot
local function forget_charge(call)
  if call.at_most == 0 then call.estimate = 0 end
end

local LATER = 9007199254740991

-- counts more calls, packed. Calls that the same quotas count are added up first.
local function count_more(list, packed)
  local sums, last_slot, last_end, longest = {}, 0, 0, 0
  for at = 9, #packed, CALL_SIZE do
    local slot, ends, estimate, _, state, is_anonymous, uncounted = unpack('>I7I7I4I4BBB', packed, at)
    local kind = 2 * uncounted + is_anonymous
    local sum = sums[kind]
    if not sum then
      sum = { is_anonymous = is_anonymous, uncounted = uncounted, slots = 0, units = 0, latest = 0 }
      sums[kind] = sum
    end
    if slot > now then
      sum.slots = sum.slots + 1
      if slot < next_end then next_end = slot end
      if slot > last_slot then last_slot = slot end
    end
    if state == HELD then
      sum.units = sum.units + estimate
      if ends < next_end then next_end = ends end
      if ends > sum.latest then sum.latest = ends end
    end
  end
  for _, sum in pairs(sums) do
    last_end = max(last_end, sum.latest)
    for _, quota in ipairs(list) do
      if counts_call(quota, sum.is_anonymous, sum.uncounted) then
        quota.held = quota.held + (quota.rule == CONCURRENT and sum.slots or sum.units)
        quota.latest = max(quota.latest, sum.latest)
      end
    end
  end
  for _, quota in ipairs(list) do longest = max(longest, quota.window) end
  -- what is charged at its expiry counts afterwards, and a debt for twice as long
  calls_until = max(calls_until, last_slot, last_end > 0 and last_end + 2 * longest or 0)
end

-- counts the open calls again
local function count_calls(list)
  next_end, calls_until = LATER, 0
  for _, quota in ipairs(list) do quota.held, quota.latest = 0, 0 end
  count_more(list, calls)
end

-- charges the estimates that have expired, each at its expiry, and removes calls that count nothing any more
local function settle(list)
  if calls == '' or now < next_end then return end
  local expired, open, time = {}, {}, now
  for at = 1, #calls, CALL_SIZE do
    local _, slot, ends, _, _, state = unpack(CALL, calls, at)
    if state == HELD and ends <= now then
      local call = read_call(at)
      expired[#expired + 1], call.state = call, 0
      if slot > now then open[#open + 1] = pack_call(call) end
    elseif state == HELD or slot > now then
      open[#open + 1] = sub(calls, at, at + CALL_SIZE - 1)
    end
  end
  table.sort(expired, function(one, other)
    if one.ends ~= other.ends then return one.ends < other.ends end
    return one.at < other.at
  end)
  for _, call in ipairs(expired) do
    now = call.ends
    for _, quota in ipairs(list) do
      if counts_call(quota, call.is_anonymous, call.uncounted) then
        refresh(quota)
        charge(quota, min(call.estimate, MOST_USED - used(quota)), now)
      end
    end
  end
  now, calls, calls_changed = time, table.concat(open), true
  count_calls(list)
end

-- these use the plan that is stored
if operation == 'commit' or operation == 'renew' or operation == 'reset' then
  if stored then
    local _, ends = read_plan(stored, HEAD_SIZE + 1)
    plan, is_new_plan = sub(stored, HEAD_SIZE + 1, ends - 1), false
  elseif operation ~= 'renew' then
    return 0
  end
end

local quotas = read_plan(plan, 1)
local generation, held = now, 0
if stored then generation, held = unpack(HEAD, stored) end

local function store()
  local idle, meters, counts = now, '', ''
  for _, quota in ipairs(quotas) do
    local last = 0
    if quota.rule == WINDOW then
      local number = #quota.entries / SIZE
      if number > 0 then
        local _, newest = entry(quota.entries, number - 1)
        last = newest + quota.length
      end
      meters = meters .. quota.entries .. pack('>I4I2', quota.used, number)
    elseif quota.rule == SMOOTH then
      last = quota.whole
      meters = meters .. pack('>dd', quota.whole, quota.moved_up)
    elseif quota.rule == FIXED then
      if quota.count > 0 then last = quota.ends + min(quota.length, KEPT) end
      meters = meters .. pack('>dI4', quota.ends, quota.count)
    end
    idle = max(idle, last)
    if calls ~= '' then counts = counts .. pack(COUNT, quota.held, quota.latest) end
  end
  local state = pack(HEAD, generation, held, calls ~= '' and 1 or 0) .. plan .. meters
  if calls ~= '' then
    idle = max(idle, calls_until)
    state = state .. calls .. counts .. pack(TAIL, next_end, calls_until, #calls / CALL_SIZE)
  end
  redis.call('SET', key, state, 'PX', ceil((idle - now) / 1000) + SPARE)
end

-- whether open calls count in a quota, so that its reset is an estimate
local function is_inexact(quota) return quota.held > 0 end

-- number of the quota, units left, and the time until the reset
local function standing(number, reset)
  local quota = quotas[number]
  if reset ~= NEVER then reset = max(reset - now, 0) end
  local left = max(quota.most - used(quota, ROUNDING) - quota.held, 0)
  return is_inexact(quota) and number + 128 or number, left, reset
end

-- when these units will fit beside the open calls, or nil if they fit now
local function blocked_until(quota, wanted)
  if quota.rule == CONCURRENT then return opens and quota.held >= quota.most and now + SLOT_RETRY or nil end
  local own = full_until(quota, wanted)
  if quota.held == 0 or wanted == 0 or own == NEVER then return own end
  local both = wanted + quota.held
  if both <= quota.most then
    local until_both = full_until(quota, both)
    if own then return until_both end
    return until_both and quota.latest
  end
  return max(own or 0, quota.latest)
end

-- when one more unit than now will be left beside the open calls
local function rises_beside_calls(quota)
  if quota.rule == CONCURRENT then return quota.held > 0 and now + SLOT_RETRY or now end
  if quota.held > 0 and used(quota) == 0 then return quota.latest end
  return rises_at(quota)
end

local function charged(quota) return anonymous or not quota.anon end

-- how many units to lease beyond those needed, and for how long
local function beyond(needed, wanted, lifetime)
  local left = math.huge
  for _, quota in ipairs(quotas) do
    if quota.rule == FIXED then lifetime = min(lifetime, quota.length - now % quota.length) end
    if charged(quota) and not quota.shadow and quota.rule ~= CONCURRENT then
      left = min(left, quota.most - used(quota) - quota.held)
    end
  end
  -- a node can't use it that fast
  if lifetime < 1000 then return 0, 0 end
  -- other nodes need some, too
  return max(min(wanted - needed, math.floor((left - needed) / 4)), 0), lifetime
end

-- the units that each of several quotas counts
local function counted()
  local counts = ''
  if #quotas > 1 or calls ~= '' then
    for _, quota in ipairs(quotas) do
      refresh(quota)
      counts = counts .. pack('>I4', used(quota))
    end
  end
  return counts
end

-- the mark by which a refund finds what was charged for a slot
local function charge_mark(quota, call)
  local is_charged = call.at_most == 0 and call.estimate > 0 and quota.rule ~= CONCURRENT
  if not is_charged or not counts_call(quota, call.is_anonymous, call.uncounted) then return NEVER end
  refresh(quota)
  -- any time of its period
  if quota.rule == FIXED and call.ends > quota.ends - quota.length then return quota.ends end
  return call.ends
end

-- 'call' is opened if the units fit. The reply has the charge of 'opened', which is open already.
local function decide(needed, wanted, lifetime, call, opened)
  local refused, refused_reset, shadow, shadow_reset
  local is_estimate = false
  local would_refuse = {}
  for i, quota in ipairs(quotas) do
    if charged(quota) then
      refresh(quota)
      local reset = blocked_until(quota, needed)
      if reset then
        if quota.shadow then
          shadow, shadow_reset = i, reset
          would_refuse[quota.bit] = true
        else
          local order = reset == NEVER and math.huge or reset
          is_estimate = is_estimate or is_inexact(quota)
          if not refused or refused_reset < order then refused, refused_reset = i, order end
        end
      end
    end
  end
  if refused then
    if refused_reset == math.huge then refused_reset = NEVER end
    local number, left, reset = standing(refused, refused_reset)
    if is_estimate and number < 128 then number = number + 128 end
    if is_new_plan or calls_changed then store() end
    return pack(REFUSED, 'r', now, number, left, reset) .. counted()
  end
  if call and #calls >= MOST_CALLS * CALL_SIZE then
    if is_new_plan or calls_changed then store() end
    return pack(FULL, 'f', now, MOST_CALLS, SLOT_RETRY) .. counted()
  end
  local more, lasts = 0, 0
  if wanted > needed then more, lasts = beyond(needed, wanted, lifetime) end
  if more == 0 then lasts = 0 end
  local granted, at = needed + more, now + lasts
  if more > 0 then held = max(held, at) end
  if call then
    for place in pairs(would_refuse) do call.uncounted = call.uncounted + place end
    if calls == '' then next_end = LATER end
    count_more(quotas, pack_call(call))
    if call.state == HELD then granted = 0 end
  end
  local shadow_number, shadow_left, shadow_wait = 0, 0, 0
  if shadow then shadow_number, shadow_left, shadow_wait = standing(shadow, shadow_reset) end
  local least_number, least, least_wait, marks = 0, 0, 0, ''
  local least_whole, latest, least_counts_calls
  local charges = 0
  for i, quota in ipairs(quotas) do
    local mark = opened and charge_mark(quota, opened) or NEVER
    if charged(quota) and not would_refuse[quota.bit] then
      if granted > 0 then
        mark = charge(quota, granted, at)
        if call and mark ~= NEVER then charges, call.ends = charges + 1, charges == 0 and mark or now end
      end
      if not quota.shadow then
        local reset = rises_beside_calls(quota)
        local number, left, wait = standing(i, reset)
        -- rates first, then the least left, then one that is whole, then the one that comes back later
        local is_whole = left >= quota.most
        local order = reset == NEVER and math.huge or reset
        local is_first = least_number == 0 or (least_counts_calls and quota.rule ~= CONCURRENT)
        local may_be = least_counts_calls or quota.rule ~= CONCURRENT
        local tighter = is_first or (may_be and left < least)
        if not tighter and may_be and left == least then
          if is_whole ~= least_whole then tighter = is_whole else tighter = order > latest end
        end
        if tighter then
          least_number, least, least_wait, least_whole, latest = number, left, wait, is_whole, order
          least_counts_calls = quota.rule == CONCURRENT
        end
      end
    end
    marks = marks .. pack('>d', mark)
  end
  if call then calls, calls_changed = calls .. pack_call(call), true end
  if granted > 0 or is_new_plan or calls_changed then store() end
  if opened and opened.at_most == 0 then granted = opened.estimate end
  return pack(ADMITTED, 'a', now, least_number, least, least_wait, generation, shadow_number, shadow_left, shadow_wait,
    granted, lasts) .. marks .. counted()
end

-- another rule: units that count now are treated as spent now, or when the last lease expires
local function carry_over(was, is)
  if was.rule == is.rule and (was.rule == WINDOW or was.length == is.length) then
    is.used, is.entries, is.whole, is.moved_up = was.used, was.entries, was.whole, was.moved_up
    is.ends, is.count = was.ends, was.count
    return
  end
  local count, at = used(was), max(now, held)
  if is.rule == SMOOTH then count = min(count, is.fine) end
  if count > 0 then
    if is.rule == FIXED then is.ends = at + is.length - at % is.length end
    charge(is, count, at)
  end
end

-- fills the meters of this plan from those of the stored one: by name, or else from the one that knows most
local function convert()
  local old = read_plan(stored, HEAD_SIZE + 1)
  read_meters(old, stored)
  settle(old)
  -- the calls that are open count in all new quotas
  change_calls(function(call)
    call.uncounted = 0
    forget_charge(call)
  end)
  next_end = 0
  for _, was in ipairs(old) do refresh(was) end
  for _, is in ipairs(quotas) do
    local same, plain, best, rank
    for _, was in ipairs(is.rule == CONCURRENT and {} or old) do
      if was.rule ~= CONCURRENT then
        if was.name == is.name and was.anon == is.anon then same = same or was end
        if was.name == is.name and not was.anon then plain = plain or was end
        local covers = was.rule == WINDOW and was.window >= is.window
        local own = {
          was.anon and 0 or 1, was.shadow and 0 or 1, covers and 1 or 0, covers and 0 or used(was), was.window,
        }
        local better = rank == nil
        if rank then
          local i = 1
          while i < 5 and own[i] == rank[i] do i = i + 1 end
          better = own[i] >= rank[i]
        end
        if better then best, rank = was, own end
      end
    end
    local source = same or plain or best
    if source then carry_over(source, is) end
  end
end

-- gives units of a spend back. Units that are charged when the last lease expires stay charged in a smooth quota.
local function refund(quota, mark)
  if quota.rule == SMOOTH then
    local own_end = mark - quota.moved_up
    local back = min(-time_of(-units, quota.length), max(own_end - max(now, held), 0))
    -- a lease can get units back several times
    if own_end < quota.whole or operation == 'return' then quota.moved_up = quota.moved_up + back end
    quota.whole = max(quota.whole - back, 0)
  elseif quota.rule == FIXED then
    if quota.ends == mark then quota.count = max(quota.count - units, 0) end
  else
    local entries, owed, is_own = quota.entries, units, true
    for number = #entries / SIZE - 1, 0, -1 do
      local opened, last, count = entry(entries, number)
      if opened <= mark then
        -- the entry that holds the spend has expired
        if is_own and last < mark then break end
        is_own = false
        local taken = min(owed, count)
        owed = owed - taken
        entries = sub(entries, 1, number * SIZE) .. pack(ENTRY, opened, last - opened, count - taken)
          .. sub(entries, (number + 1) * SIZE + 1)
        if owed == 0 then break end
      end
    end
    quota.used, quota.entries = quota.used - (units - owed), entries
  end
end

-- units of another plan stay spent, and the state of that plan is not converted back
if operation == 'return' and stored and sub(stored, HEAD_SIZE + 1, HEAD_SIZE + #ARGV[7]) ~= ARGV[7] then
  return false
end
if is_new_plan then
  convert()
  -- a refund from before finds nothing, also if the plan changes back
  generation = max(now, generation + 1)
elseif stored then
  read_meters(quotas, stored)
end
settle(quotas)
if operation == 'commit' then
  local at = find_call(ARGV[6])
  if not at then return 0 end
  local call = read_call(at)
  calls = sub(calls, 1, at - 1) .. sub(calls, at + CALL_SIZE)
  count_calls(quotas)
  if ARGV[7] == 'undo' then
    units = call.estimate
    for _, quota in ipairs(quotas) do
      local mark = charge_mark(quota, call)
      if mark ~= NEVER then refund(quota, mark) end
    end
    store()
    return 1
  end
  local spent = ARGV[7] == '' and call.estimate or min(tonumber(ARGV[7]), call.at_most)
  -- it may have been charged before a late renewal has added it
  if call.state == ADDED and ARGV[8] == '1' then spent = 0 end
  local expected, excess = min(spent, call.state == HELD and call.estimate or 0), max(spent - call.estimate, 0)
  for _, quota in ipairs(quotas) do
    if counts_call(quota, call.is_anonymous, call.uncounted) then
      refresh(quota)
      -- a debt is at most as large as the limit
      local counts = used(quota) + quota.held + expected
      local more = expected + min(excess, max(2 * quota.most - counts, 0))
      charge(quota, min(more, MOST_USED - used(quota)), now)
    end
  end
  store()
  return 1
end
if operation == 'renew' then
  local renewed, changed, ends = {}, {}, now + tonumber(ARGV[6])
  for i = 7, #ARGV, 4 do renewed[ARGV[i]] = i end
  local packed_ends = pack('>I7', ends)
  for at = 1, #calls, CALL_SIZE do
    local id = sub(calls, at, at + 7)
    local slot = renewed[id] and packed_ends or sub(calls, at + 8, at + 14)
    changed[#changed + 1], renewed[id] = id .. slot .. sub(calls, at + 15, at + CALL_SIZE - 1), nil
  end
  for id, i in pairs(renewed) do
    changed[#changed + 1] = pack_call({
      id = id, slot = ends, ends = 0, estimate = tonumber(ARGV[i + 2]), at_most = tonumber(ARGV[i + 3]), state = ADDED,
      is_anonymous = tonumber(ARGV[i + 1]), uncounted = 0,
    })
  end
  calls = table.concat(changed)
  count_calls(quotas)
  store()
  return 1
end
if operation == 'reset' then
  if calls == '' then return redis.call('DEL', key) end
  for _, quota in ipairs(quotas) do clear(quota) end
  change_calls(function(call)
    if call.state == HELD then call.state = 0 end
    forget_charge(call)
  end)
  count_calls(quotas)
  generation, held = max(now, generation + 1), 0
  store()
  return 1
end
if opens then
  local at = find_call(ARGV[6])
  if at then
    -- it was sent twice, and the first reply may be lost
    opens = false
    return decide(0, 0, 0, nil, read_call(at))
  end
  local lifetime = tonumber(ARGV[9])
  local call = {
    id = ARGV[6], slot = now + tonumber(ARGV[7]), ends = now + lifetime, estimate = units,
    at_most = tonumber(ARGV[8]), state = lifetime > 0 and HELD or 0, is_anonymous = anonymous and 1 or 0, uncounted = 0,
  }
  return decide(units, 0, 0, call)
end
if operation == 'debit' then
  for i, quota in ipairs(quotas) do
    if charged(quota) then
      refresh(quota)
      local more = min(tonumber(ARGV[5 + i]), MOST_USED - used(quota))
      if more > 0 then charge(quota, more, now) end
    end
  end
  store()
  return decide(0, 0)
end
if operation == 'spend' then return decide(units, 0) end
if operation == 'lease' then return decide(units, tonumber(ARGV[6]), tonumber(ARGV[7])) end

if not stored then return false end
-- a spend of another plan, or from before a reset, no longer counts
if not is_new_plan and ARGV[7] == plan and tonumber(ARGV[6]) == generation then
  for i, quota in ipairs(quotas) do
    refresh(quota)
    local mark = ARGV[7 + i]
    if mark and mark ~= '' then refund(quota, tonumber(mark)) end
  end
  store()
end
return decide(0, 0)
