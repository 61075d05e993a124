"""Writes a wheel of attnlab.py and the program, or installs the module, without pip and without a network.

    python3 wheel.py wheel PROGRAM VERSION FOLDER       FOLDER/attnlab-VERSION-py3-none-PLATFORM.whl
    python3 wheel.py module VERSION FOLDER              FOLDER/attnlab.py and its dist-info
    python3 wheel.py where PREFIX                       the folder for modules below PREFIX

The wheel has the program, every library that it needs beyond glibc, and their licences.  The program finds the
libraries by its own RPATH ($ORIGIN/lib).  The platform is the newest glibc whose symbols any of them uses.
"""
import base64
import hashlib
import os
import re
import site
import subprocess
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.join(HERE, "../../..")
GLIBC = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|resolv))\.so")
SUMMARY = "judges attention: a battery of cases, an oracle, a bound for every element"


def run(*words):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return done.stdout if done.returncode == 0 else ""


def libraries(program):
    """{name: path} of what the program needs beyond glibc."""
    lines = run("ldd", program).splitlines()
    if any("not found" in line for line in lines) or not lines:
        sys.exit(f"wheel: not all libraries of {program} are found")
    found = dict(re.findall(r"^\s*(\S+) => (\S+)", "\n".join(lines), re.M))
    return {name: os.path.realpath(path) for name, path in found.items() if not GLIBC.match(name)}


def platform(files):
    versions = [tuple(map(int, x)) for path in files
                for x in re.findall(r"\(?GLIBC_(\d+)\.(\d+)", run("objdump", "-T", path))]
    if not versions:
        sys.exit("wheel: objdump (binutils) finds no symbols of glibc")
    return "manylinux_{}_{}_{}".format(*max(versions), os.uname().machine)


def licences(paths):
    """{name in the wheel: text}, as Debian's packages have them; a library without one is an error."""
    found = {}
    for name, path in paths.items():
        package = (run("dpkg", "-S", path) or run("dpkg", "-S", path.replace("/usr/lib", "/lib"))).partition(":")[0]
        text = f"/usr/share/doc/{package}/copyright"
        if not package or not os.path.exists(text):
            sys.exit(f"wheel: no licence is found for {name} ({path}): it must go with the library")
        with open(text, "rb") as file:
            found[f"licenses/{package}.txt"] = file.read()
    return found


def read(path):
    with open(path, "rb") as file:
        return file.read()


def dist_info(version, platform_tag, more):
    """{path: (contents, mode)} of the dist-info but for its RECORD."""
    folder = f"attnlab-{version}.dist-info/"
    licence = "attnlab: see licenses/LICENSE. GSL is under the GNU GPL 3, and so is what is distributed with it." \
        if more else "see licenses/LICENSE"
    text = {"METADATA": f"Metadata-Version: 2.1\nName: attnlab\nVersion: {version}\nSummary: {SUMMARY}\n"
                        f"License: {licence}\nRequires-Python: >=3.8\n",
            "entry_points.txt": "[console_scripts]\nattnlab = attnlab:_main\n\n[pytest11]\nattnlab = attnlab\n"
            if more else "[pytest11]\nattnlab = attnlab\n",
            "licenses/LICENSE": read(os.path.join(TREE, "LICENSE")), **more}
    if platform_tag:
        text["WHEEL"] = f"Wheel-Version: 1.0\nGenerator: attnlab\nRoot-Is-Purelib: false\nTag: py3-none-{platform_tag}\n"
    return {folder + name: (x.encode() if isinstance(x, str) else x, 0o644) for name, x in text.items()}


def record(version, files):
    lines = []
    for name, (data, _) in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}")
    name = f"attnlab-{version}.dist-info/RECORD"
    return name, ("\n".join([*lines, f"{name},,"]) + "\n").encode()


def wheel(program, version, folder):
    needed = libraries(program)
    tag = platform([program, *needed.values()])
    files = {"attnlab.py": (read(os.path.join(HERE, "attnlab.py")), 0o644),
             "attnlab_program/attnlab": (read(program), 0o755)}
    files.update({f"attnlab_program/lib/{name}": (read(path), 0o755) for name, path in sorted(needed.items())})
    files.update(dist_info(version, tag, licences(needed)))
    name, data = record(version, files)
    files[name] = data, 0o644
    path = os.path.join(folder, f"attnlab-{version}-py3-none-{tag}.whl")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, (data, mode) in files.items():  # no time of today: one commit is one wheel
            about = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            about.external_attr, about.compress_type = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
            out.writestr(about, data)
    print(path)


def module(version, folder):
    files = {"attnlab.py": (read(os.path.join(HERE, "attnlab.py")), 0o644), **dist_info(version, None, {})}
    name, data = record(version, files)
    files[name] = data, 0o644
    for name, (data, mode) in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
        os.chmod(path, mode)


def where(prefix):
    """Of the folders that python3 looks into the first below PREFIX; else one that PYTHONPATH must name."""
    own = [x for x in site.getsitepackages() if x.startswith(prefix.rstrip("/") + "/lib/")] if prefix != "/usr" else \
        [x for x in site.getsitepackages() if x.startswith("/usr/lib/")]
    print(own[0] if own else f"{prefix}/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages")


if __name__ == "__main__":
    if sys.argv[1] == "wheel":
        wheel(sys.argv[2], sys.argv[3], sys.argv[4])
    elif sys.argv[1] == "module":
        module(sys.argv[2], sys.argv[3])
    else:
        where(sys.argv[2])
