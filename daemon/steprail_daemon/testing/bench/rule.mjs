// What an SDK inside a Node process costs: it spawns the agent, reads its lines with readline, counts steps against a
// rule that never matches, and answers each boundary. Arguments: the agent's command line.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

const STEP_LIMIT = 1_000_000_000;
const [program, ...args] = process.argv.slice(2);
const agent = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] });
let steps = 0;

createInterface({ input: agent.stdout }).on("line", (line) => {
  const message = JSON.parse(line);
  if (message.type !== "control_request" || message.request.subtype !== "hook_callback") return;
  steps += 1;
  const response = steps >= STEP_LIMIT ? { continue: false, stopReason: "step_count" } : {};
  const answer = { subtype: "success", request_id: message.request_id, response };
  agent.stdin.write(JSON.stringify({ type: "control_response", response: answer }) + "\n");
});
agent.on("exit", (code) => process.exit(code ?? 1));
agent.stdin.write("\n");
