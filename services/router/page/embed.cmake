# cmake -DDIRECTORY=... -DFILES=a.html,b.js -DOUTPUT=page_files.cc -P embed.cmake: the files as one C++ source.
set(types_html "text/html; charset=utf-8")
set(types_css "text/css; charset=utf-8")
set(types_js "text/javascript; charset=utf-8")
set(types_svg "image/svg+xml")
string(REPLACE "," ";" FILES "${FILES}")
set(arrays "")
set(rows "")
set(number 0)
foreach(name IN LISTS FILES)
  get_filename_component(extension "${name}" LAST_EXT)
  string(SUBSTRING "${extension}" 1 -1 extension)
  if(NOT DEFINED types_${extension})
    message(FATAL_ERROR "${name}: embed.cmake knows no content type for .${extension}: add it")
  endif()
  file(READ "${DIRECTORY}/${name}" bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  string(APPEND arrays "constexpr unsigned char kFile${number}[] = {${bytes}};\n")
  string(APPEND rows "    {\"${name}\", \"${types_${extension}}\",\n"
                     "     {reinterpret_cast<const char*>(kFile${number}), sizeof(kFile${number})}},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE "${OUTPUT}" "// Made by embed.cmake.
#include \"services/router/page/page_files.h\"

namespace moestro::router {
namespace {

${arrays}
const PageFile kFiles[] = {
${rows}};

}  // namespace

std::span<const PageFile> PageFiles() { return kFiles; }

}  // namespace moestro::router
")
