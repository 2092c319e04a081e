-- Asks ClusterTab whether a job may run, before it is submitted, and reserves for it. docs/how-to/slurm-plugins.md.
-- It runs as the user who submits. The command below is all that a shell sees: what was asked for goes by a file.
local CONFIG = "/etc/clustertab-slurm/clustertab-slurm.conf"
local CURL = "exec /usr/bin/curl -q -s -m 2 --noproxy '*' --unix-socket /run/clustertab-slurm/ask.sock --data-binary @"
local NAMES = { "type", "account", "partition", "qos", "time", "nodes", "ntasks", "gres", "gpus", "gpus-per-node",
  "gpus-per-task", "gpus-per-socket", "tres-per-task", "cpus-per-task", "mem", "array", "dependency", "hold", "begin" }
local keys = {}

local function setting(name, value)
  local file = io.open(CONFIG)
  for line in (file and file:read("*a") or ""):gmatch("[^\n]+") do
    value = line:match("^%s*" .. name .. "%s*=%s*(%a+)") or value
  end
  if file then file:close() end
  return value
end

local function post(path, lines)
  local name = os.tmpname() -- made by mkstemp: nobody else can write or replace it
  if not name:match("^/tmp/lua_%w+$") then return "" end
  lines[#lines + 1] = "key=" .. (lines.key or os.time() .. name:sub(10))
  local file = assert(io.open(name, "w"))
  file:write(table.concat(lines, "\n"), "\n")
  file:close()
  local pipe = assert(io.popen(CURL .. name .. " http://clustertab/" .. path))
  local text = pipe:read("*a") or ""
  pipe:close()
  os.remove(name)
  return text, lines[#lines]:sub(5)
end

function slurm_cli_setup_defaults(options, early) return slurm.SUCCESS end

function slurm_cli_pre_submit(options, offset)
  local is_step = options.type == "srun" and (os.getenv("SLURM_JOB_ID") or options.jobid)
  if is_step or options["test-only"] == "set" then return slurm.SUCCESS end
  local lines = {}
  for _, name in ipairs(NAMES) do
    if options[name] then lines[#lines + 1] = name .. "=" .. tostring(options[name]):gsub("%c", " ") end
  end
  local fine, text, key = pcall(post, "ask", lines)
  local word, message = (fine and text or ""):match("^(%a+)\n(.*)")
  local tell = word == "yes" and slurm.log_info or slurm.log_error
  for line in (message or ""):gmatch("[^\n]+") do tell("ClusterTab: %s", line) end
  if word == "yes" then keys[offset or 0] = key return slurm.SUCCESS end
  if word == "no" then return setting("on_refusal", "reject") == "admit" and slurm.SUCCESS or slurm.ERROR end
  local admits = setting("on_failure", "admit") ~= "reject"
  tell("ClusterTab does not answer: the job is %s.", admits and "submitted all the same" or "rejected, try again later")
  if not admits then return slurm.ERROR end
  options.comment = (options.comment and options.comment .. " " or "") .. "[ClusterTab did not answer: admitted]"
  return slurm.SUCCESS
end

function slurm_cli_post_submit(offset, job_id, step_id)
  local key = keys[offset or 0]
  if key then pcall(post, "submitted", { key = key, ("job_id=%d"):format(job_id) }) end
  return slurm.SUCCESS
end
