package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/client"
)

// pageTag matches the parent snapshot in the pages. The tests have a snapshot with the same
// content.
var pageTag = regexp.MustCompile(`\bpy\b`)

// noNetwork is the shared daemon's warning about policies, because it has no forkd-net.
const noNetwork = "warning  this daemon has no forkd-net: sandboxes have no network\n"

// commandLimit is the time for one command of a page. A command that serves until it is stopped is
// no example.
const commandLimit = 2 * time.Minute

// TestReadme runs the console blocks of the README, one after another, and compares the output.
func TestReadme(t *testing.T) {
	d := shared(t)
	d.unchanged()
	ids := map[string]string{} // sandboxes' IDs by the page's IDs
	t.Cleanup(func() {
		for _, id := range ids {
			_ = d.c.Kill(context.Background(), id) // the page kills them unless the test failed
		}
		if err := d.c.DeleteSnapshot(context.Background(), "tried", client.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	page, err := os.ReadFile("testdata/README.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := consoleCommands(string(page))
	if len(commands) < 10 {
		t.Fatalf("the README has %d commands", len(commands))
	}
	for _, c := range commands {
		run := pageTag.ReplaceAllString(c.run, parentTag)
		for page, id := range ids {
			run = strings.ReplaceAll(run, page, id)
		}
		limited, cancel := context.WithTimeout(t.Context(), commandLimit)
		cmd := exec.CommandContext(limited, "sh", "-c", run)
		cmd.Env = d.env()
		cmd.WaitDelay = time.Second // a command's child may keep the pipe
		b, err := cmd.CombinedOutput()
		cancel()
		if err != nil {
			t.Fatalf("line %d: %s: %v\n%s", c.line, run, err, b)
		}
		got := strings.TrimRight(strings.ReplaceAll(string(b), noNetwork, ""), "\n")
		if err := matchOutput(c.output, got, ids); err != nil {
			t.Fatalf("line %d: %s: %v\nprinted:\n%s\nthe page has:\n%s", c.line, run, err, got, c.output)
		}
	}
}

// pageCommand is a command of a console block and its output.
type pageCommand struct {
	line        int
	run, output string
}

// consoleCommands returns the commands of a page's console blocks. A command is a line beginning
// with "$ ". Its output is the lines up to the next command or to the end of the block.
func consoleCommands(page string) []pageCommand {
	var all []pageCommand
	inside := false
	for i, line := range strings.Split(page, "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```console"
		case inside && strings.HasPrefix(line, "$ "):
			all = append(all, pageCommand{line: i + 1, run: line[2:]})
		case inside && len(all) > 0:
			c := &all[len(all)-1]
			c.output = strings.TrimPrefix(c.output+"\n"+line, "\n")
		}
	}
	return all
}

var (
	pageID   = regexp.MustCompile(`sb-[a-z2-7]{16}`)
	measured = regexp.MustCompile(`\d+(\.\d+)? (µs|ms|s|B|KiB|MiB|GiB)\b|\d+ from the pool`)
	blanks   = regexp.MustCompile(` +`)
)

// matchOutput compares output with a page's. Times, sizes and column widths may differ. At the
// first occurrence of an ID of the page, it records the matching sandbox.
func matchOutput(want, got string, ids map[string]string) error {
	wants, gots := strings.Split(want, "\n"), strings.Split(got, "\n")
	if len(wants) != len(gots) {
		return fmt.Errorf("%d lines, want %d", len(gots), len(wants))
	}
	for i := range wants {
		for _, m := range pageID.FindAllString(wants[i], -1) {
			if at := strings.Index(wants[i], m); ids[m] == "" && at < len(gots[i]) {
				ids[m] = pageID.FindString(gots[i][at:])
			}
		}
		if w, g := withoutMeasures(replaceIDs(wants[i], ids)), withoutMeasures(gots[i]); w != g {
			return fmt.Errorf("%q, want %q", g, w)
		}
	}
	return nil
}

func replaceIDs(line string, ids map[string]string) string {
	return pageID.ReplaceAllStringFunc(line, func(id string) string { return ids[id] })
}

func withoutMeasures(line string) string {
	return strings.TrimSpace(blanks.ReplaceAllString(measured.ReplaceAllString(line, "N"), " "))
}

func TestMatchOutput(t *testing.T) {
	const a, b = "sb-aaaaaaaaaaaaaaaa", "sb-bbbbbbbbbbbbbbbb"
	for name, c := range map[string]struct {
		want, got string
		ok        bool
	}{
		"times differ":    {"ID  READY\n" + a + "  1.9 s", "ID   READY\n" + b + "  12 ms", true},
		"values differ":   {"10", "11", false},
		"another line":    {"10", "10\n", false},
		"another sandbox": {a + "\n" + a, b + "\n" + a, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := matchOutput(c.want, c.got, map[string]string{}); (err == nil) != c.ok {
				t.Errorf("%v, want a match: %v", err, c.ok)
			}
		})
	}
}
