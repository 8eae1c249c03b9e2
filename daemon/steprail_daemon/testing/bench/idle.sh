# The least that is an agent: takes the handshake of Claude Code 2.1.332, then waits for the end of its stdin.
case " $* " in
*" --version "*)
  echo "2.1.332 (Claude Code)"
  exit
  ;;
esac
while IFS= read -r line; do
  case $line in
  *'"subtype":"initialize"'*)
    id=${line#*'"request_id":"'}
    printf '{"type":"control_response","response":{"subtype":"success","request_id":"%s","response":' "${id%%'"'*}"
    printf '{"claude_code_version":"2.1.332","hooks_applied":true,"hook_on_failure_supported":true}}}\n'
    ;;
  esac
done
