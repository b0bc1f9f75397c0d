// changes writes the changelog of a release: the version's section of CHANGELOG.md together with the
// fragments of changelog/, by area (changelog/README.md).
//
//	changes 0.1.0                           print the changelog; the tree stays as it is
//	changes --apply --date 2026-01-31 0.1.0 move the fragments into CHANGELOG.md
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// source is where the tags of releases have the files that the changelog links to.
const source = "https://github.com/forkd/forkd/blob/v"

func main() {
	apply := flag.Bool("apply", false, "move the fragments into CHANGELOG.md")
	date := flag.String("date", "", "with --apply: the day of the release, as 2006-01-31 (default: today)")
	root := flag.String("root", ".", "the top of the tree")
	flag.Parse()
	if err := run(*root, flag.Args(), *apply, *date); err != nil {
		fmt.Fprintln(os.Stderr, "changes:", err)
		os.Exit(1)
	}
}

func run(root string, args []string, apply bool, date string) error {
	if len(args) != 1 {
		return errors.New("usage: changes [--apply [--date DAY]] VERSION")
	}
	t, err := readTree(root)
	if err != nil {
		return err
	}
	if !apply {
		text, err := t.changes(args[0])
		if err == nil {
			_, err = os.Stdout.WriteString(text)
		}
		return err
	}
	if date == "" {
		date = time.Now().UTC().Format(time.DateOnly)
	}
	if _, err := time.Parse(time.DateOnly, date); err != nil {
		return fmt.Errorf("--date: %w", err)
	}
	text, err := t.apply(args[0], date)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, "CHANGELOG.md"), []byte(text), 0o644); err != nil {
		return err
	}
	for _, f := range t.fragments {
		if err := os.Remove(filepath.Join(root, "changelog", f.name)); err != nil {
			return err
		}
	}
	return nil
}

// tree is the part of the source that changelogs are made from.
type tree struct {
	changelog string
	areas     []string // in the order of changelog/README.md
	fragments []fragment
}

type fragment struct {
	name string // of the file
	area string // empty if the fragment names no area
	text string // items of a list
}

func readTree(root string) (*tree, error) {
	b, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return nil, err
	}
	t := &tree{changelog: string(b)}
	b, err = os.ReadFile(filepath.Join(root, "changelog", "README.md"))
	if err != nil {
		return nil, err
	}
	if t.areas = areasOf(string(b)); len(t.areas) == 0 {
		return nil, errors.New("changelog/README.md has no list below the heading Areas")
	}
	files, err := filepath.Glob(filepath.Join(root, "changelog", "*.md")) // sorted
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		name := filepath.Base(file)
		if name == "README.md" {
			continue
		}
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		f, err := parseFragment(string(b), t.areas)
		if err != nil {
			return nil, fmt.Errorf("changelog/%s: %w", name, err)
		}
		f.name = name
		t.fragments = append(t.fragments, f)
	}
	return t, nil
}

// areasOf returns the items of the list below the heading Areas.
func areasOf(readme string) []string {
	_, list, _ := strings.Cut("\n"+readme, "\n## Areas\n")
	list, _, _ = strings.Cut(list, "\n## ")
	var areas []string
	for line := range strings.Lines(list) {
		if item, ok := strings.CutPrefix(line, "- "); ok {
			areas = append(areas, strings.TrimSpace(item))
		}
	}
	return areas
}

var areaLine = regexp.MustCompile(`(?i)^area:[ \t]*(.*)$`)

func parseFragment(text string, areas []string) (fragment, error) {
	var f fragment
	text = strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n"))
	first, rest, _ := strings.Cut(text, "\n")
	if m := areaLine.FindStringSubmatch(first); m != nil {
		area, err := findArea(strings.TrimSpace(m[1]), areas)
		if err != nil {
			return f, err
		}
		f.area, text = area, strings.TrimSpace(rest)
	}
	switch {
	case text == "":
		return f, errors.New("the fragment is empty")
	case strings.Contains(text, "```"):
		return f, errors.New("indent code by four spaces; fences are not supported")
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			return f, errors.New("a fragment has no headings; its area is the line \"area: NAME\" at the top")
		}
	}
	f.text = items(text)
	return f, nil
}

// findArea returns the area with the name. A name may end before the first colon or comma: Life is the
// area "Life: pause, resume, deadlines".
func findArea(name string, areas []string) (string, error) {
	for _, area := range areas {
		short := area
		if end := strings.IndexAny(area, ":,"); end > 0 {
			short = area[:end]
		}
		if strings.EqualFold(name, area) || strings.EqualFold(name, short) {
			return area, nil
		}
	}
	return "", fmt.Errorf("unknown area %q; areas are %q", name, areas)
}

// width of the lines of CHANGELOG.md.
const width = 100

// items returns the paragraphs of a fragment as items of a list. A fragment without a list is one item.
func items(text string) string {
	var blocks []string
	list := strings.HasPrefix(text, "- ")
	for _, paragraph := range strings.Split(text, "\n\n") {
		paragraph = strings.Trim(paragraph, "\n")
		switch {
		case strings.TrimSpace(paragraph) == "":
		case !list:
			blocks = append(blocks, indent(paragraph, len(blocks) == 0))
		default:
			for i, item := range strings.Split("\n"+paragraph, "\n- ") {
				if i == 0 && strings.TrimSpace(item) == "" {
					continue
				}
				block := indent(strings.Trim(item, "\n"), i > 0)
				if i == 0 || len(blocks) == 0 {
					blocks = append(blocks, block) // a paragraph of the item above
				} else {
					blocks[len(blocks)-1] += "\n" + block
				}
			}
		}
	}
	return strings.Join(blocks, "\n\n") + "\n"
}

// indent returns a paragraph as the first one of an item, or as a further one.
func indent(paragraph string, first bool) string {
	if !first && strings.HasPrefix(paragraph, "    ") { // code
		return "  " + strings.ReplaceAll(paragraph, "\n", "\n  ")
	}
	lines := wrap(paragraph, width-2)
	prefix := "  "
	if first {
		prefix = "- "
	}
	return prefix + strings.Join(lines, "\n  ")
}

// unbroken are code and words; a space in code does not end a line.
var unbroken = regexp.MustCompile("(?:`[^`]*`|[^\\s`])+|`")

func wrap(text string, width int) []string {
	var lines []string
	line, n := "", 0
	for _, word := range unbroken.FindAllString(text, -1) {
		word = strings.Join(strings.Fields(word), " ")
		size := len([]rune(word))
		switch {
		case line == "":
			line, n = word, size
		case n+1+size > width:
			lines = append(lines, line)
			line, n = word, size
		default:
			line, n = line+" "+word, n+1+size
		}
	}
	return append(lines, line)
}

// section is the part of CHANGELOG.md about one version.
type section struct {
	before, after string // the rest of the file
	title         string // the version, and the day or "(unreleased)"; empty if there is no section
	intro         string
	areas         []area
}

type area struct{ name, text string }

const other = "Other changes"

// cut finds the section of a version. A pre-release has the section of its release.
func cut(changelog, version string) section {
	version, _, _ = strings.Cut(version, "+")
	release, _, _ := strings.Cut(version, "-")
	for _, v := range []string{version, release} {
		heading := regexp.MustCompile(`(?m)^## ` + regexp.QuoteMeta(v) + `(?: .*)?$`).FindStringIndex(changelog)
		if heading == nil {
			continue
		}
		s := section{before: changelog[:heading[0]], title: changelog[heading[0]+len("## ") : heading[1]]}
		body := changelog[heading[1]:]
		if next := strings.Index(body, "\n## "); next >= 0 {
			body, s.after = body[:next], body[next+1:]
		}
		parts := strings.Split(body, "\n### ")
		s.intro = strings.TrimSpace(parts[0])
		for _, part := range parts[1:] {
			name, text, _ := strings.Cut(part, "\n")
			s.areas = append(s.areas, area{strings.TrimSpace(name), strings.Trim(text, "\n") + "\n"})
		}
		return s
	}
	s := section{before: changelog}
	if next := strings.Index(changelog, "\n## "); next >= 0 {
		s.before, s.after = changelog[:next+1], changelog[next+1:]
	}
	return s
}

// add puts the fragments into their areas. Areas of the section keep their order; new ones follow in
// the order of changelog/README.md.
func (s *section) add(t *tree) {
	for _, name := range append(slices.Clone(t.areas), other) {
		text := ""
		for _, f := range t.fragments {
			if f.area == name || f.area == "" && name == other {
				text += f.text
			}
		}
		if text == "" {
			continue
		}
		at := slices.IndexFunc(s.areas, func(a area) bool { return a.name == name })
		if at < 0 {
			s.areas = append(s.areas, area{name, text})
		} else {
			s.areas[at].text += text
		}
	}
}

// body returns the section without its title.
func (s *section) body(level string) string {
	var parts []string
	if s.intro != "" {
		parts = append(parts, s.intro+"\n")
	}
	for _, a := range s.areas {
		parts = append(parts, level+" "+a.name+"\n\n"+a.text)
	}
	return strings.Join(parts, "\n")
}

var link = regexp.MustCompile(`\]\(([^):#]+)((?:#[^)]*)?\))`)

// changes returns the changelog of a version as a document of its own.
func (t *tree) changes(version string) (string, error) {
	s := cut(t.changelog, version)
	if s.title != "" && !strings.Contains(s.title, "unreleased") && len(t.fragments) > 0 {
		return "", fmt.Errorf("CHANGELOG.md says that %s is released, but changelog/ has %d fragments",
			s.title, len(t.fragments))
	}
	s.add(t)
	if len(s.areas) == 0 && s.intro == "" {
		return "", fmt.Errorf("there are no changes of %s", version)
	}
	body := link.ReplaceAllString(s.body("##"), "]("+source+strings.ReplaceAll(version, "$", "")+"/$1$2")
	return "# forkd " + version + "\n\n" + body, nil
}

// apply returns CHANGELOG.md with the fragments in the section of the version.
func (t *tree) apply(version, date string) (string, error) {
	if strings.ContainsAny(version, "-+") {
		return "", fmt.Errorf("fragments stay until the release: %s is a pre-release or a build", version)
	}
	var without []string
	for _, f := range t.fragments {
		if f.area == "" {
			without = append(without, f.name)
		}
	}
	if len(without) > 0 {
		return "", fmt.Errorf("fragments without an area: %s; add a first line \"area: NAME\", one of %q",
			strings.Join(without, ", "), t.areas)
	}
	s := cut(t.changelog, version)
	if s.title != "" && !strings.Contains(s.title, "unreleased") {
		return "", fmt.Errorf("CHANGELOG.md says that %s is released", s.title)
	}
	s.add(t)
	if len(s.areas) == 0 && s.intro == "" {
		return "", fmt.Errorf("there are no changes of %s", version)
	}
	text := strings.TrimRight(s.before, "\n") + "\n\n## " + version + " (" + date + ")\n\n" + s.body("###")
	if s.after != "" {
		text += "\n" + s.after
	}
	return text, nil
}
