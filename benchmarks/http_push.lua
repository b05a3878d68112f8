-- Pushes of BATCH messages of 200 bytes for wrk: every message has an id of its own, a request goes to one partition.
local batch = tonumber(os.getenv("BATCH") or "100")
local payload = '{"hello":"' .. string.rep("x", 188) .. '"}'
local number = 0
local salt = os.time() % 65536

function request()
  local items = {}
  local partition = math.floor(number / batch) % 16
  for index = 1, batch do
    number = number + 1
    items[index] = string.format(
      '{"queue":"q","partition":"p%d","transactionId":"0190aaaa-bbbb-7ccc-%04x-%012x","payload":%s}',
      partition, salt, number, payload)
  end
  local body = '{"items":[' .. table.concat(items, ",") .. "]}"
  return wrk.format("POST", "/api/v1/push", { ["content-type"] = "application/json" }, body)
end
