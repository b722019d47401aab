package release

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
)

// program is what a manifest needs to know of an ELF file.
type program struct {
	arch  string // as GOARCH spells it
	glibc string // newest GLIBC_ version needed, "" for a static program
}

var goarch = map[elf.Machine]string{
	elf.EM_X86_64:    "amd64",
	elf.EM_AARCH64:   "arm64",
	elf.EM_386:       "386",
	elf.EM_ARM:       "arm",
	elf.EM_RISCV:     "riscv64",
	elf.EM_PPC64:     "ppc64le",
	elf.EM_S390:      "s390x",
	elf.EM_LOONGARCH: "loong64",
}

// readProgram looks into r; ok is false where r is no ELF program. A file that
// claims to be one and cannot be read is none: whether it runs is the health's
// business, not the manifest's.
func readProgram(r io.ReaderAt) (p program, ok bool) {
	f, err := elf.NewFile(r)
	if err != nil {
		return program{}, false
	}
	defer f.Close()
	if f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN {
		return program{}, false
	}
	p.arch = goarch[f.Machine]
	if p.arch == "" {
		p.arch = strings.ToLower(strings.TrimPrefix(f.Machine.String(), "EM_"))
	}
	needs, err := f.DynamicVersionNeeds()
	if err != nil {
		return p, true
	}
	for _, n := range needs {
		for _, v := range n.Needs {
			if g, ok := strings.CutPrefix(v.Dep, "GLIBC_"); ok && newer(g, p.glibc) {
				p.glibc = g
			}
		}
	}
	return p, true
}

// newer compares dotted versions; text that is none (GLIBC_PRIVATE) is older
// than everything.
func newer(a, b string) bool {
	as, aok := version(a)
	bs, _ := version(b)
	if !aok {
		return false
	}
	for i := range as {
		if as[i] != bs[i] {
			return as[i] > bs[i]
		}
	}
	return false
}

func version(s string) (v [3]int, ok bool) {
	parts := strings.Split(s, ".")
	if len(parts) < 2 || len(parts) > 3 {
		return v, false
	}
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil || n < 0 {
			return [3]int{}, false
		}
		v[i] = n
	}
	return v, true
}

// HostGlibc is the newest version that the C library below root ("/") offers,
// read from the library itself because nothing of the host need run for it;
// "" where there is none.
func HostGlibc(root string) (string, error) {
	var found []string
	for _, glob := range []string{"lib/*-linux-gnu/libc.so.6", "usr/lib/*-linux-gnu/libc.so.6", "lib64/libc.so.6", "usr/lib64/libc.so.6", "lib/libc.so.6", "usr/lib/libc.so.6"} {
		m, err := filepath.Glob(filepath.Join(root, glob))
		if err != nil {
			return "", fmt.Errorf("look for the C library below %s: %w", root, err)
		}
		found = append(found, m...)
	}
	best := ""
	var errs error
	for _, p := range found {
		f, err := elf.Open(p)
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("read the C library %s: %w", p, err))
			continue
		}
		defs, err := f.DynamicVersions()
		f.Close()
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("read the versions of %s: %w", p, err))
			continue
		}
		for _, d := range defs {
			if g, ok := strings.CutPrefix(d.Name, "GLIBC_"); ok && newer(g, best) {
				best = g
			}
		}
	}
	if best == "" && errs != nil {
		return "", errs
	}
	return best, nil
}

// checkHost refuses a release that this host could not run (case R-09).
func (m *Manifest) checkHost(product, arch, glibc string) error {
	switch {
	case m.Product != product:
		return fmt.Errorf("release %s is one of product %s, this host runs %s", m.ID, m.Product, product)
	case m.Arch != arch:
		return fmt.Errorf("release %s is built for %s, this host is %s", m.ID, m.Arch, arch)
	case m.Glibc != "" && glibc == "":
		return fmt.Errorf("release %s needs glibc %s, this host has no glibc", m.ID, m.Glibc)
	case newer(m.Glibc, glibc):
		return fmt.Errorf("release %s needs glibc %s, this host has %s", m.ID, m.Glibc, glibc)
	}
	return nil
}
