package pages

import (
	"fmt"
	"regexp"
	"strings"
)

// tolerated matches parts of lines that may differ: times, sizes, digests, versions of the agent, and
// ports that the kernel chose.
var tolerated = regexp.MustCompile(`\d+(\.\d+)? (µs|ms|s|min|h|B|KiB|MiB|GiB|MB)\b|\d+ from the pool|` +
	`\d+ pages\b|\br[0-9a-f]{18}\b|\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|` +
	`\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?(\.\d+)?Z?|\b\d\d:\d\d:\d\d\b|\b\d{10}-[0-9a-f]{6}\b|` +
	`\b(\d+h)?(\d+m)?\d+(\.\d+)?[smhd]\b|\b[0-9a-f]{12,64}\b|127\.0\.0\.1:\d{5}\b|` +
	`\b(AuthenticAMD|GenuineIntel) family \d+ model \d+ stepping \d+, \d+ features|\b\d+\.\d+\.\d+\+deb\S+|` +
	`\bagent +(dev\b|\d+\.\d+\.\d+|[0-9a-f]{7,40}\b)\S*`)

// checked is the age of a background check that may also not have happened yet, like "-".
var checked = regexp.MustCompile(`\b\d+[smhd] ago\b`)

var (
	sandboxID = regexp.MustCompile(`\bsb-?([a-z2-7]{16})\b`)
	blanks    = regexp.MustCompile(` +`)
	rules     = regexp.MustCompile(`─+|-{4,}`)
)

// ids translates sandboxes' IDs between a page and its run. It has the part behind "sb-", because
// host names have IDs without the dash.
type ids struct{ run, page map[string]string }

func newIDs() ids { return ids{run: map[string]string{}, page: map[string]string{}} }

func (m ids) bind(page, run string) { m.run[page], m.page[run] = run, page }

func replaceIDs(text string, by map[string]string) string {
	return sandboxID.ReplaceAllStringFunc(text, func(id string) string {
		key := id[len(id)-16:]
		if to, ok := by[key]; ok {
			return id[:len(id)-16] + to
		}
		return id
	})
}

// unknown returns the IDs in a text, without "sb-", that are no keys of known.
func unknown(text string, known map[string]string) []string {
	var list []string
	for _, m := range sandboxID.FindAllStringSubmatch(text, -1) {
		if _, ok := known[m[1]]; !ok {
			list = append(list, m[1])
		}
	}
	return list
}

// match compares output with a page's. Tolerated parts and column widths may differ. A line "..."
// of the page stands for any lines, and "…" for any text within a line. At the first occurrence of an ID of
// the page, match records the matching sandbox.
func match(want, got string, m ids) error {
	wants, gots := lines(want), lines(got)
	for len(wants) > 0 && len(gots) > 0 && wants[0] != "..." {
		if err := matchLine(wants[0], gots[0], m); err != nil {
			return err
		}
		wants, gots = wants[1:], gots[1:]
	}
	switch {
	case len(wants) == 0 && len(gots) == 0:
		return nil
	case len(wants) == 0:
		return fmt.Errorf("more lines than the page has: %q", gots[0])
	case wants[0] != "...":
		return fmt.Errorf("%q is missing", wants[0])
	}
	for rest := strings.Join(wants[1:], "\n"); ; gots = gots[1:] {
		if err := match(rest, strings.Join(gots, "\n"), m); err == nil || len(gots) == 0 {
			return err
		}
	}
}

// lines splits a text. An empty text has no line.
func lines(text string) []string {
	if text = strings.TrimRight(text, "\n"); text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func matchLine(want, got string, m ids) error {
	news := unknown(got, m.page)
	for i, id := range unknown(want, m.run) {
		if i < len(news) && m.run[id] == "" {
			m.bind(id, news[i])
		}
	}
	for _, id := range unknown(got, m.page) {
		got = strings.ReplaceAll(got, id, "another")
	}
	w, g := plain(want), plain(replaceIDs(got, m.page))
	begin, end, open := strings.Cut(w, "…")
	rest, ok := strings.CutPrefix(g, begin)
	if w == g || open && ok && strings.HasSuffix(rest, end) {
		return nil
	}
	return fmt.Errorf("%q, want %q", g, w)
}

// plain returns a line without the parts that may differ.
func plain(line string) string {
	line = checked.ReplaceAllString(line, "-")
	line = tolerated.ReplaceAllString(line, "N")
	return strings.TrimSpace(blanks.ReplaceAllString(rules.ReplaceAllString(line, "─"), " "))
}
