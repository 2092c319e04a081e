-- Refuses jobs of accounts that ClusterTab has blocked, and tells why. docs/how-to/slurm-plugins.md.
-- It runs inside slurmctld, which waits for it: it reads one small file and does nothing else. Jobs are let in where
-- the file is absent, older than it says, or not as expected: what enforces is the block of the account.
local FILE = "/run/clustertab-slurm/blocked-accounts"

local function row_of(account, uid)
  local file = io.open(FILE)
  if not file then return nil end
  local text = file:read(8388608) or ""
  file:close()
  local valid_until = tonumber(text:match("^clustertab 2 (%d+)\n"))
  if not valid_until or os.time() > valid_until then return nil end
  for what, name, members, message in text:gmatch("\n(%a+)\t([^\t\n]*)\t([%d ]*)\t([^\n]*)") do
    if name == account then
      -- How much is left of it is for its own users: the account is what anybody can say.
      if not (" " .. members .. " "):find((" %d "):format(uid), 1, true) then message = "This account is blocked." end
      return what, message
    end
  end
end

local function wants_gpus(job)
  for _, name in ipairs({ "gres", "tres_per_node", "tres_per_job", "tres_per_socket", "tres_per_task" }) do
    local text = job[name]
    if type(text) == "string" and (text:find("gpu", 1, true) or text:find("shard", 1, true)) then return true end
  end
  return false
end

local function decide(account, job, uid)
  local what, message = row_of((account or ""):lower(), uid)
  if what == nil or (what ~= "all" and not wants_gpus(job)) then return slurm.SUCCESS end
  if what == "tell" then
    slurm.log_user("ClusterTab: %s Until then its GPU jobs wait.", message)
    return slurm.SUCCESS
  end
  slurm.log_user("ClusterTab: %s", message)
  return slurm.ERROR
end

local function safely(account, job, uid)
  local fine, answer = pcall(decide, account, job, uid)
  if fine then return answer end
  slurm.log_error("job_submit.lua of ClusterTab: %s", tostring(answer))
  return slurm.SUCCESS
end

function slurm_job_submit(job, partitions, uid)
  return safely(job.account or job.default_account, job, uid)
end

function slurm_job_modify(change, job, partitions, uid)
  if change.account then return safely(change.account, wants_gpus(change) and change or job, uid) end
  return wants_gpus(change) and safely(job.account, change, uid) or slurm.SUCCESS
end

return slurm.SUCCESS
