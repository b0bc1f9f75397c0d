#!/bin/sh
# Uses forkd's MCP server with the official Inspector's command line. MCP_TEST_INSPECTOR is its command; client.py
# has the other variables.
set -eu

forkd=$MCP_TEST_FORKD
snapshot=${MCP_TEST_SNAPSHOT:-py}
set -f # the words of variables are no patterns

# The Inspector hands no variables on, so they are named.
vars=
for name in FORKD_URL FORKD_TOKEN FORKD_MACHINE; do
	eval "value=\${$name-}"
	[ -z "$value" ] || vars="$vars -e $name=$value"
done

inspect() {
	era=$1
	shift
	$MCP_TEST_INSPECTOR --cli --quiet --protocol-era "$era" $vars "$forkd" mcp "$@"
}

expect() {
	case $2 in
	*"$1"*) ;;
	*)
		echo "want $1 in: $2" >&2
		exit 1
		;;
	esac
}

for era in legacy modern; do
	# --strict fails if a schema is not portable
	expect '"spawn_sandboxes"' "$(inspect $era --method tools/list --strict)"
	expect '"forkd://tree"' "$(inspect $era --method resources/list)"
	expect 'forkd://sandbox/{id}/file{+path}' "$(inspect $era --method resources/templates/list)"
	expect '"try_ways"' "$(inspect $era --method prompts/list)"
	expect "$snapshot" "$(inspect $era --method resources/read --uri forkd://tree)"
	expect "$snapshot" "$(inspect $era --method tools/call --tool-name list_snapshots)"
	expect '"ends_with_session": true' \
		"$(inspect $era --method tools/call --tool-name spawn_sandboxes --tool-arg snapshot_tag="$snapshot")"
	expect 'forkd.dev/code": "not_found"' \
		"$(inspect $era --method tools/call --tool-name get_sandbox --tool-arg sandbox_id=sb-none || true)"
	expect 'risky step' \
		"$(inspect $era --method prompts/get --prompt-name branch_before_risk --prompt-args sandbox_id=sb-1 step=x)"
	echo "ok   $era"
done
