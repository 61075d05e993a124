# Write the sources of all mutants: awk -v out=FOLDER -f plant.awk LIST.def...
#
# FOLDER/ID.src/unit.c is the unit, and FOLDER/ID.src/FILE the changed file where that is another one:
# the folder is searched before the tree.  A file that is there already keeps its time, so that a build
# compiles only what changed.  Kernels are compiled in one arithmetic: float, or double for a UNIT
# that ends in :64.
#
# A fragment must occur exactly once: one that does not is named, nothing is written, and the status
# is 1.

function bad(id, what) {
    print "mutant " id ": " what > "/dev/stderr"
    failed = 1
}

# The text of a file, "" when there is none.
function text_of(path,    line, text) {
    while ((getline line < path) > 0)
        text = text line "\n"
    close(path)
    return text
}

function write(path, text) {
    printf "%s", text > path
    if (close(path) != 0)
        bad(path, "cannot be written")
}

function fragment(line) {
    sub(/^  . /, "", line)
    gsub(/\\n/, "\n", line)
    return line
}

FNR == 1 { id = "" }
/^[A-Z][A-Z]*-[0-9a-z]* / {
    id = $1
    if (id in unit)
        bad(id, "stands twice")
    else
        order[++n] = id
    unit[id] = $3
    file[id] = $4 != "" ? $4 : $3
    sub(/:.*/, "", file[id])
    sub(/:.*/, "", unit[id])
    if (unit[id] == "optimized/simd/portable.c")
        only[id] = "#define ONLY_BITS " ($3 ~ /:64$/ ? 64 : 32) "\n"
}
/^  - / { from[id] = from[id] fragment($0); lines[id] = lines[id] "-" }
/^  \+ / { to[id] = to[id] fragment($0); lines[id] = lines[id] "+" }

function source(path) {
    if (!(path in tree))
        tree[path] = text_of(path)
    return tree[path]
}

function changed(id,    at, rest, whole) {
    whole = source(file[id])
    at = from[id] == "" ? 0 : index(whole, from[id])
    rest = substr(whole, at + length(from[id]))
    if (lines[id] != "-+")
        bad(id, "needs one line with - and one with +")
    else if (at == 0 || index(rest, from[id]) > 0)
        bad(id, "its fragment must occur once in " file[id] ":\n" from[id])
    return substr(whole, 1, at - 1) to[id] rest
}

# A mutant whose files are not there, or others; its folder may hold a file that was changed before.
function plan(id,    folder, path) {
    folder = out "/" id ".src"
    path[1] = folder "/unit.c"
    text[path[1]] = only[id] (file[id] == unit[id] ? changed(id) : source(unit[id]))
    if (text[path[1]] == only[id])
        bad(id, unit[id] " is empty or not there")
    if (file[id] != unit[id]) {
        path[2] = folder "/" file[id]
        text[path[2]] = changed(id)
    }
    if (text_of(path[1]) == text[path[1]] && (!(2 in path) || text_of(path[2]) == text[path[2]]))
        return
    gone = gone " " folder
    write_to[++writes] = path[1]
    if (2 in path)
        write_to[++writes] = path[2]
}

function folder_of(path) {
    sub(/\/[^\/]*$/, "", path)
    return path
}

END {
    for (m = 1; m <= n; m++)
        plan(order[m])
    if (failed)
        exit 1
    for (w = 1; w <= writes; w++)
        folders = folders " " folder_of(write_to[w])
    if (writes > 0 && system("rm -rf" gone " && mkdir -p" folders) != 0)
        exit 1
    for (w = 1; w <= writes; w++)
        write(write_to[w], text[write_to[w]])
    exit failed
}
