package pages

import (
	"fmt"
	"strings"
)

// block is a fenced or an indented block of a page.
type block struct {
	line     int    // the number of its first line, the fence
	language string // the word after the fence; empty for a fence without one
	indented bool
	lines    []string
}

// first returns the block's first line, without the indentation.
func (b block) first() string {
	if len(b.lines) == 0 {
		return ""
	}
	return strings.TrimSpace(b.lines[0])
}

// blocks returns the fenced and indented blocks of a page. Lines of a list's item are no block.
func blocks(page string) []block {
	var all []block
	fenced, before := false, ""
	for i, line := range strings.Split(page, "\n") {
		last := len(all) - 1
		switch {
		case strings.HasPrefix(line, "```"):
			if fenced = !fenced; fenced {
				all = append(all, block{line: i + 1, language: line[3:]})
			}
		case fenced:
			all[last].lines = append(all[last].lines, line)
		case strings.HasPrefix(line, "    ") && before == "":
			all = append(all, block{line: i + 1, indented: true, lines: []string{line[4:]}})
		case strings.HasPrefix(line, "    ") && last >= 0 && all[last].indented && all[last].line+len(all[last].lines) == i+1:
			all[last].lines = append(all[last].lines, line[4:])
		}
		before = line
	}
	return all
}

// console is the language of blocks that are run. sh is that of commands that are not run.
const console, sh = "console", "sh"

// command is a command of a console block and its output.
type command struct {
	line        int // the line of the page with the prompt
	lines       int // the lines of the command
	run, output string
}

// commands returns the commands of a page's console blocks. A command is a line that begins with
// "$ ". A line that ends with a backslash continues it. Its output is the lines up to the next
// command or to the end of the block.
func commands(page string) ([]command, error) {
	var all []command
	for _, b := range blocks(page) {
		if b.language != console {
			continue
		}
		if !strings.HasPrefix(b.first(), "$ ") {
			return nil, fmt.Errorf("line %d: a console block begins with %q and not with a command", b.line, b.first())
		}
		continued := false
		for i, line := range b.lines {
			if text, ok := strings.CutPrefix(line, "$ "); ok && !continued {
				all = append(all, command{line: b.line + 1 + i, lines: 1, run: text})
			} else if c := &all[len(all)-1]; continued {
				c.run += "\n" + line
				c.lines++
			} else {
				c.output += line + "\n"
			}
			continued = strings.HasSuffix(line, `\`) && (continued || strings.HasPrefix(line, "$ "))
		}
	}
	return all, nil
}
