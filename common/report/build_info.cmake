# Writes OUTPUT from build_info_values.h.in at build time, so that the revision is that of the built sources. Leaves it
# untouched if nothing changed. Run with cmake -P.
execute_process(COMMAND git describe --always --dirty --tags WORKING_DIRECTORY ${CMAKE_CURRENT_LIST_DIR}
                OUTPUT_VARIABLE MOESTRO_REVISION OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
configure_file(${CMAKE_CURRENT_LIST_DIR}/build_info_values.h.in ${OUTPUT} @ONLY)
